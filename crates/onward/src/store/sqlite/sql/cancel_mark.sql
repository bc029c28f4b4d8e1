-- Notes that children of a run that is asked to end are to be asked too, if there may be any: those of the
-- runs before it are its own.
update onward_runs
set cascades = 1
where no = ?1
    and (
        continued_from is not null
        or exists (
            select 1
            from onward_runs c
            where c.parent = onward_runs.id
                and c.parent is not null
                and c.finished_at is null
                and c.detached = 0
                and c.cancel_at is null
        )
    )
