-- Leaves the trace by which a late repeat of a settle is known. The first one stays: an attempt ends
-- once, whatever ends its run later.
insert into onward.attempts (run, attempt, build, settled)
values ($1, $2, $3, $4)
on conflict (run, attempt) do nothing
