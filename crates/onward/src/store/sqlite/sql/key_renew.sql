-- Lets a hold last longer, as long as it is this one.
update onward_step_keys
set until = ?2
where token = ?1 and state = 'held' and key = ?3 and holder = ?4
