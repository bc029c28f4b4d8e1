-- Knows a repeated start by its run, and whether its claimant still holds it untouched.
select
    created_at,
    worker,
    attempt,
    ticket,
    exists (select 1 from onward.records where run = onward.runs.id)
from onward.runs
where id = $1
