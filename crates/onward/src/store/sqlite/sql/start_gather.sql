-- Notes which run a gathered start met.
insert into onward_gathered (start, run, created_at, at)
values (?1, ?2, ?3, ?4)
on conflict (start) do update
set
    run = excluded.run,
    created_at = excluded.created_at,
    at = excluded.at
