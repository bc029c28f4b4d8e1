-- Adds the starts that imported runs' keys suppressed, oldest first.
insert into onward.duplicates (run, start, at, caller, same_input)
select run, start, at, caller, same_input
from unnest($1, $2, $3, $4, $5) with ordinality as kept (run, start, at, caller, same_input, place)
order by place
