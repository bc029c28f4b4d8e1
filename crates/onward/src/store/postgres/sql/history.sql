-- A page of a run's records in order, voided ones included. No index has this order, so the keys of the whole
-- history are sorted; the other columns are read only for the records of the page.
select
    r.seq,
    r.step,
    r.kind,
    r.body,
    r.try_number,
    r.attempt,
    r.began_at,
    r.at,
    r.next_at,
    r.foreign_await,
    r.voided_at
from (
    select h.step, h.slot, h.seq, h.attempt
    from onward.records h
    where h.run = $1
        and h.seq > $2
    order by h.seq, h.attempt
    limit $3
) p
join onward.records r on r.run = $1 and r.step = p.step and r.slot = p.slot
order by p.seq, p.attempt
