-- Counts one that came second, and says how many there are.
update onward_step_keys
set duplicates = duplicates + 1
where token = ?1
returning duplicates
