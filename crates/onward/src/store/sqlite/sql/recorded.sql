-- Whether a run has any record, voided or not.
select 1
from records
where run = ?1
limit 1
