-- Deletes a pruned run's history.
delete from records
where run = ?1
