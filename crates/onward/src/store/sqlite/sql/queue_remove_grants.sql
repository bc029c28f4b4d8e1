-- Forgets what was granted of a queue that has no limits any more.
delete from onward_grants
where queue = ?1
