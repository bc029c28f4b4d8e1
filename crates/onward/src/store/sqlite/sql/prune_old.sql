-- The runs of one final state that ended by a time, longest ago first.
select
    finished_at,
    id,
    no
from onward_runs
where finished_at is not null
    and state = ?1
    and finished_at <= ?2
order by finished_at, id
limit ?3
