-- Counts bytes of signals that a run was sent, or that were taken back.
update onward_runs
set signal_bytes = signal_bytes + ?2
where no = ?1
