-- Knows a repeated start by its run, and whether its claimant still holds it untouched.
select
    created_at,
    worker,
    attempt,
    ticket,
    exists (select 1 from onward_records where run = onward_runs.no)
from onward_runs
where id = ?1
