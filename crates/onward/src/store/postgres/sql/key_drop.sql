-- Forgets a key.
delete from onward.step_keys
where key = $1
returning token
