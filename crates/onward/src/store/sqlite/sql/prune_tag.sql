-- Deletes a tag of a pruned run.
delete from onward_tags
where name = ?1
    and value = ?2
    and run = ?3
