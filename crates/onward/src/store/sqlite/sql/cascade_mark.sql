-- Notes that children of a cancelled run are to be cancelled.
update onward_runs
set cascades = 1
where no = ?1
