-- Adds a line to a run's log, unless it is there.
insert into onward_log (run, no, at, step, try_number, text)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do nothing
