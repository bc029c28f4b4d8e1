-- The histories of runs, voided records included, each in order: the columns of history.sql, then
-- the run.
select
    seq,
    step,
    kind,
    body,
    try_number,
    attempt,
    began_at,
    at,
    next_at,
    foreign_await,
    voided_at,
    run
from onward.records
where run = any ($1)
order by run, seq
