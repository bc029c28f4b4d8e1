-- How many migrations the database has had.
select version
from onward.schema
