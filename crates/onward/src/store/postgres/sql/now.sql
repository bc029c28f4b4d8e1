-- The store's time: a test's, or the database's own. It sets no search path, as every function here does
-- that is not put into the statements which call it, and names what it uses in full.
create or replace function onward.now_ms(given bigint) returns bigint
language sql volatile as $$
    select coalesce(
        given,
        (extract(epoch from pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000)::bigint
    )
$$;

-- Tells whoever listens that a run may be claimable.
create or replace function onward.tell_work() returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_notify('onward_' || split_part('onward.', '.', 1), 'sql work');
end
$$;
