-- Deletes the suppressed starts of a pruned run.
delete from onward_duplicates
where run = ?1
