-- Whether a run has any record, voided or not.
select 1
from onward.records
where run = $1
limit 1
