-- Deletes the traces of a pruned run's attempts.
delete from attempts
where run = ?1
