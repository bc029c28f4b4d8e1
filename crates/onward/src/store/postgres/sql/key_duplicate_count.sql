-- Counts one that came second, and says how many there are.
update onward.step_keys
set duplicates = duplicates + 1
where key = $1
returning duplicates
