-- Says whose child a run is.
update onward_runs
set
    parent = ?2,
    parent_step = ?3,
    detached = ?4
where no = ?1
