-- The fence's first half: whether a worker is marked lost. No row is as good as lost.
select lost_at is not null
from onward_workers
where id = ?1
