-- Takes limits and pause from a queue.
delete from onward_queues
where name = ?1
returning name
