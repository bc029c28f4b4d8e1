-- Says whose child a run is.
update onward.runs
set
    parent = $2,
    parent_step = $3,
    detached = $4
where id = $1
