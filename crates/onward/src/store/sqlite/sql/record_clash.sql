-- Whether another record has this sequence number, or ends the step that ?3 = 1 would end too.
select 1
from onward_records
where run = ?1
    and seq = ?2
union all
select 1
from onward_records
where run = ?1
    and step = ?4
    and (kind = 'done' or kind = 'failed' or kind = 'fired')
    and voided_at is null
    and ?3 = 1
limit 1
