-- Notes that children of a cancelled run are to be cancelled.
update onward.runs
set cascades = true
where id = $1
