-- How many runs of one final state ended after one and before a time, and the last of them.
select
    count(*) over (),
    finished_at,
    id
from (
    select
        finished_at,
        id
    from onward_runs
    where finished_at is not null
        and state = ?1
        and (finished_at, id) > (?2, ?3)
        and finished_at < ?4
    order by finished_at, id
    limit ?5
) as ended
order by finished_at desc, id desc
limit 1
