-- Notes which run a suppressed start met, for the case that it was gathered: one whose answer was lost is
-- known here too.
insert into onward_gathered (start, run, created_at, at)
values (?1, ?2, ?3, ?4)
on conflict (start) do nothing
