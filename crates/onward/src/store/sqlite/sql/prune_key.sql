-- Frees the key of a run that is pruned or gives it up, if it still has it, and says whether the key
-- was its own rather than expired.
delete from onward_keys
where workflow = ?1
    and key = ?2
    and run = ?3
returning expires_at is null or expires_at > ?4
