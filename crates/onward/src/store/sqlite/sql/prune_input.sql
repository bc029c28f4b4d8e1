-- Deletes a pruned run's input, and names its tags.
delete from onward_inputs
where no = ?1
returning tags
