-- Deletes a run's own row, and names what else is found by it.
delete from onward_runs
where no = ?1
returning
    workflow,
    key
