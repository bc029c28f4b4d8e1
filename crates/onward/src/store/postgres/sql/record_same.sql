-- Whether the identical record is there, voided since or not: a repeat after a lost answer.
select 1
from onward.records
where run = $1
    and step = $3
    and (slot = 0 or slot = $2)
    and seq = $2
    and kind = $4
    and body is not distinct from $5
    and try_number = $6
    and attempt = $7
    and next_at is not distinct from $8
