-- Whether a record is there that its holder was told of, voided since or not.
select 1
from onward_records
where run = ?1
    and step = ?3
    and (slot = 0 or slot = ?2)
    and seq = ?2
