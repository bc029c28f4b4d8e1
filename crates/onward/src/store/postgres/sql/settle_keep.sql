-- Leaves the trace by which a late repeat of a settle is known.
insert into onward.attempts (run, attempt, build, settled)
values ($1, $2, $3, $4)
on conflict (run, attempt) do update
set
    build = excluded.build,
    settled = excluded.settled
