-- Forgets cancelled runs whose children are all asked to end.
update onward_runs
set cascades = null
where cascades is not null
