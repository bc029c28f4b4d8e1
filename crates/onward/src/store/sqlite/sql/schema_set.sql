-- Says how many migrations the file has had, in the transaction of the last one.
update onward_schema
set version = ?1
