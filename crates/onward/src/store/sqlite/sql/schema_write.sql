-- Writes nothing, and takes the write lock: a transaction that has only read may wait for it only as long as
-- it has read nothing.
update onward_schema
set version = version
where version < 0
