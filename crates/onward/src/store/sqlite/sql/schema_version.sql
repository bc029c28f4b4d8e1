-- How many migrations the file has had.
select version
from onward_schema
