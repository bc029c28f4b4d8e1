-- Whether an attempt left a record.
select 1
from onward_records
where run = ?1
    and attempt = ?2
limit 1
