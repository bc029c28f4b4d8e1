-- Deletes a pruned run's output.
delete from outputs
where no = ?1
