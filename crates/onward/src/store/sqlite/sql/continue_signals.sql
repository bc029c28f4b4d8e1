-- Counts the signals that a run took over.
update onward_runs
set signals = ?2, signal_bytes = ?3
where no = ?1
