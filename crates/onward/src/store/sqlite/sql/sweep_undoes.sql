-- Whether a run has something to undo, or is on its way back.
select 1
from onward_records
where run = ?1
    and voided_at is null
    and (kind = 'undoable' or step = '$undo')
limit 1
