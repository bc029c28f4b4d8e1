-- Takes back a record of the same write, before anybody could see it.
delete from onward_records
where run = ?1
    and seq = ?2
