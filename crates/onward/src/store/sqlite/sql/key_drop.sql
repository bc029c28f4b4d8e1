-- Forgets a key.
delete from onward_step_keys
where key = ?1
returning token
