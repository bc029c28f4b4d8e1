-- Adds lines of logs as they stood in another store, those that are not there.
insert into onward.log (no, at, step, try_number, text, run)
select *
from unnest($1, $2, $3, $4, $5, $6)
on conflict do nothing
