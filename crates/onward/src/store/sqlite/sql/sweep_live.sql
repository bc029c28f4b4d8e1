-- Workers that are not lost.
select id
from workers
where lost = 0
