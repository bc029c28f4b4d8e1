-- Removes a schedule. Its runs stay.
delete from onward.schedules
where name = $1
returning 1
