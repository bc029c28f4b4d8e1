-- Deletes a pruned run's output.
delete from onward_outputs
where no = ?1
