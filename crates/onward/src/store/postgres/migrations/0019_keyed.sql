-- Every table has a primary key, without which some servers replicate no update.
alter table onward.schema add primary key (version);

-- They take or answer more from here on, which cannot be replaced.
drop function if exists onward.claim_limited(bigint, uuid, text[], text[], text[], boolean, integer, uuid[]);
drop function if exists onward.claim_left(bigint, uuid, text[], text[], text[], text[]);

alter function onward.shown(text) set search_path = pg_catalog, pg_temp;
