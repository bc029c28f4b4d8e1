-- The store's time: a test's, or the database's own.
create or replace function onward.now_ms(given bigint) returns bigint
language sql volatile as $$
    select coalesce(given, (extract(epoch from clock_timestamp()) * 1000)::bigint)
$$;

-- Tells whoever listens that a run may be claimable.
create or replace function onward.tell_work() returns void
language plpgsql volatile as $$
begin
    perform pg_notify('onward_' || split_part('onward.', '.', 1), 'sql work');
end
$$;
