-- Adds the traces of imported runs' attempts.
insert into onward.attempts (run, attempt, build, settled)
select *
from unnest($1, $2, $3, $4)
