-- Takes the failure that ended a run, and its tries, out of the history, visibly.
update onward.records
set
    voided_at = $3,
    slot = seq
where run = $1
    and step = $2
    and kind <> 'arrived'
    and voided_at is null
