-- Keeps a suppressed start and counts it. One start counts once, however often it is repeated.
with added as (
    insert into onward.duplicates (run, start, at, caller, same_input)
    values ($1, $2, $3, $4, $5)
    on conflict (run, start) do nothing
    returning run
)
update onward.runs
set duplicates = duplicates + 1
from added
where id = added.run
returning duplicates
