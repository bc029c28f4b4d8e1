-- The store's time: a test's, or the database's own.
create or replace function onward.now_ms(given bigint) returns bigint
language sql volatile as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000)::bigint)
$$;
