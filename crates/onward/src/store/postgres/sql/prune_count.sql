-- How many runs of these final states ended by a time.
select count(*)
from onward.runs
where finished_at is not null
    and state = any ($1)
    and finished_at <= $2
