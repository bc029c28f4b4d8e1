-- Workers other than the sweeper whose lease has expired, or is further ahead than it lasts: it was made
-- before the clock was set back.
select id
from onward_workers
where lost_at is null
    and (lease_until < ?1 or lease_until > ?1 + 2 * lease_ms)
    and exists (
        select 1
        from onward_workers own
        where own.id = ?2
            and own.lease_until <= ?1 + 2 * own.lease_ms
    )
    and id <> ?2
