-- Closes a worker's claim whose answer was lost: it finds what it took, and takes no more.
update onward.workers set closed_ticket = $2 where id = $1
