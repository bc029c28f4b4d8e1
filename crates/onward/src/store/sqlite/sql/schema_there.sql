-- Whether the store's tables are in this file.
select 1
from sqlite_schema
where type = 'table'
    and name = 'onward_schema'
