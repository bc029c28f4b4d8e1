-- Says how many migrations the database has had, in the transaction of the last one.
update onward.schema
set version = $1
