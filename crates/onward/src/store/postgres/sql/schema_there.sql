-- Whether the store's tables are in this database.
select to_regclass('onward.schema') is not null
