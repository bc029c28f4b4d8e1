-- Notes which run a gathered start met, and forgets a few notes that are too old to be asked for.
with over as (
    delete from onward.gathered
    where start in (
        select start
        from onward.gathered
        where at <= $5
        order by at
        limit $6
        for update skip locked
    )
)
insert into onward.gathered (start, run, created_at, at)
values ($1, $2, $3, $4)
on conflict (start) do update
set
    run = excluded.run,
    created_at = excluded.created_at,
    at = excluded.at
