-- How many runs of one final state ended by a time.
select count(*)
from onward_runs
where finished_at is not null
    and state = ?1
    and finished_at <= ?2
