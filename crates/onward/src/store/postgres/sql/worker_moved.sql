-- Whether any of these workers joined another server than this.
select 1
from unnest(onward.moved($1))
