-- Deletes the traces of a pruned run's attempts.
delete from onward_attempts
where run = ?1
