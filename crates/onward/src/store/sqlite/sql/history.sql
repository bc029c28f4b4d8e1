-- A page of a run's records, voided ones included. Only the numbers of the whole history are put in order,
-- for no index has them in it; what the page holds is read after that, and is for the caller to sort.
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
    select no
    from onward_records
    where run = ?1
        and seq > ?2
    order by seq, attempt
    limit ?3
) p
cross join onward_records r on r.no = p.no
