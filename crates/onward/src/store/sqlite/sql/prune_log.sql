-- Deletes a run's log.
delete from onward_log
where run = ?1
