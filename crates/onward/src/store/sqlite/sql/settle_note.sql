-- Notes on a run that changed code asks for recorded steps no more.
update onward_runs
set code_change = ?2
where no = ?1
