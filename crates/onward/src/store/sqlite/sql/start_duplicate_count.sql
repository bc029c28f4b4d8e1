-- Counts a suppressed start on the run that has the key, and says how many there are.
update onward_runs
set duplicates = duplicates + 1
where no = ?1
returning duplicates
