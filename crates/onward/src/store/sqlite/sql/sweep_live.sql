-- Workers that are not lost.
select id
from onward_workers
where lost_at is null
