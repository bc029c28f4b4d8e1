-- The records of what a claim took, voided ones included. The claim sorts them.
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
