-- Leaves the trace by which a late repeat of a settle is known. The first one stays: an attempt ends
-- once, whatever ends its run later.
insert or ignore into onward_attempts (run, attempt, build, settled)
values (?1, ?2, ?3, ?4)
