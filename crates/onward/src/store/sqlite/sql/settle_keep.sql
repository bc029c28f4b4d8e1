-- Leaves the trace by which a late repeat of a settle is known.
insert or replace into attempts (run, attempt, build, settled)
values (?1, ?2, ?3, ?4)
