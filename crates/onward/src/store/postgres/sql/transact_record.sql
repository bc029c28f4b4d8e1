-- The record that ends a step, if there is one.
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
from onward.records
where run = $1
    and step = $2
    and slot = 0
