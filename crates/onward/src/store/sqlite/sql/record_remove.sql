-- Takes back a record of the same write, before anybody could see it.
delete from onward_records
where run = ?1
    and step = ?2
    and slot = ?3
