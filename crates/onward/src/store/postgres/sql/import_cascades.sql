-- Notes that children of these runs are to be cancelled.
update onward.runs
set cascades = true
where id = any ($1)
