-- Workers other than the sweeper whose lease has expired.
select id
from onward_workers
where lost_at is null
    and lease_until < ?1
    and id <> ?2
