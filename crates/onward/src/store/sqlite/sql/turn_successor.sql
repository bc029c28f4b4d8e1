-- Lets a run be followed by another. It is not read: it may be one that cannot be.
update onward_runs
set successor = ?2
where id = ?1
