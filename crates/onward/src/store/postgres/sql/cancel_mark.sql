-- Notes that children of a run that is asked to end are to be asked too, if there are any.
update onward.runs r
set cascades = true
where r.id = $1
    and exists (
        select from onward.runs c
        where c.parent = r.id
            and c.parent is not null
            and c.finished_at is null
            and not c.detached
            and c.cancel_at is null
    )
