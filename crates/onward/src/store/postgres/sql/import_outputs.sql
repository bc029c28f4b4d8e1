-- Keeps what imported runs ended with.
insert into onward.outputs (run, output, failure)
select *
from unnest($1, $2, $3)
