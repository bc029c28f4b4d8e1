-- A page of a run's records in order, voided ones included.
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
    and seq > ?2
order by seq, attempt
limit ?3
