-- How many runs of these final states ended so long ago.
select count(*)
from onward.runs
where finished_at is not null
    and state = any ($1)
    and finished_at <= (select onward.now_ms($2) - $3)
