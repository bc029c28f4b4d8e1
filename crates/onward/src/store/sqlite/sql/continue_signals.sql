-- Counts the signals that a run took over.
update onward_runs
set signals = ?2
where no = ?1
