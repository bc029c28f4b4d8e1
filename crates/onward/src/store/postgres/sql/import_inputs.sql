-- Keeps what imported runs were started with.
insert into onward.inputs (run, input, tags)
select *
from unnest($1, $2, $3)
