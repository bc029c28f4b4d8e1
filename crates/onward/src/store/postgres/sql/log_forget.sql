-- Deletes the lines of a run's log up to one of them.
delete from onward.log
where run = $1
    and no <= $2
