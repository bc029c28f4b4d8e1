-- Frees a pruned run's key, if it still has it.
delete from onward_keys
where workflow = ?1
    and key = ?2
    and run = ?3
