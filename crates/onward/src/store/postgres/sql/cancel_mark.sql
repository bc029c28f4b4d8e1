-- Notes that children of a run that is asked to end are to be asked too, if there may be any: those of the
-- runs before it are its own.
update onward.runs r
set cascades = true
where r.id = $1
    and (
        r.continued_from is not null
        or exists (
            select from onward.runs c
            where c.parent = r.id
                and c.parent is not null
                and c.finished_at is null
                and not c.detached
                and c.cancel_at is null
        )
    )
