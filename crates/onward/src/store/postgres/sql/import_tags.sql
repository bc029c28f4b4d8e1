-- Lets lists find imported runs by their tags.
insert into onward.tags (name, value, run)
select *
from unnest($1, $2, $3)
