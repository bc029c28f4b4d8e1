-- Takes the start and the end of a child out of the history, visibly.
update onward_records
set
    voided_at = ?3,
    slot = seq
where run = ?1
    and (
        step = ?2 || ' started'
        or (kind = 'arrived' and rtrim(step, '0123456789') = ?2 || '#')
    )
    and voided_at is null
