-- Every table has a primary key, without which some servers replicate no update.
alter table onward.schema add primary key (version);
