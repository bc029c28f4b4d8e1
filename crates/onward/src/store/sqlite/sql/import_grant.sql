-- Adds what was granted of a queue in another store.
insert into onward_grants (queue, at, count)
values (?1, ?2, ?3)
