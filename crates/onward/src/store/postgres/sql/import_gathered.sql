-- Notes which runs suppressed starts met, for the case that they were gathered: one whose answer was lost
-- is known here too.
insert into onward.gathered (start, run, created_at, at)
select *
from unnest($1, $2, $3, $4)
on conflict (start) do nothing
