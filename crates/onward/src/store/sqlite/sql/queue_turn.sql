-- Notes whose turn was last.
update onward_queues
set last_lane = ?2
where name = ?1
