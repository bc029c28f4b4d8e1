-- Deletes a pruned run's signals.
delete from onward_signals
where run = ?1
