-- Whether a worker is marked lost. No row is as good as lost.
select lost_at is not null
from onward.workers
where id = $1
