-- The record that ends a step, if there is one: a transaction is executed once.
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
    and step = ?2
    and slot = 0
