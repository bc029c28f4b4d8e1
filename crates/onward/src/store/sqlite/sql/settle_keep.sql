-- Leaves the trace by which a late repeat of a settle is known.
insert or replace into onward_attempts (run, attempt, build, settled)
values (?1, ?2, ?3, ?4)
