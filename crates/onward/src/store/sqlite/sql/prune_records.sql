-- Deletes a pruned run's history.
delete from onward_records
where run = ?1
