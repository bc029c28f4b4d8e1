-- A run's records, voided ones included. The claim sorts them.
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
    voided_at
from onward_records
where run = ?1
