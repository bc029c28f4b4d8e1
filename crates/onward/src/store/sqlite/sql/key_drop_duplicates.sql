-- Forgets those that came second with a key that is forgotten.
delete from onward_step_key_duplicates
where token = ?1
