-- Deletes the suppressed starts of a pruned run.
delete from duplicates
where run = ?1
