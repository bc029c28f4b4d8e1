-- Notes which run a gathered start met.
insert into onward_gathered (start, run, created_at, at)
values (?1, ?2, ?3, ?4)
