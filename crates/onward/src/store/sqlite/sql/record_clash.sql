-- Whether another record is in the slot that a record would take.
select 1
from onward_records
where run = ?1
    and step = ?2
    and slot = ?3
