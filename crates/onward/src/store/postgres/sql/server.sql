-- What tells this server from another, and from what it becomes when a standby is promoted or a backup is
-- restored: its system identifier, its timeline, and the database. Nothing where it does not tell.
create or replace function onward.server() returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return concat_ws(
        '/',
        (select c.system_identifier from pg_control_system() c),
        left(pg_walfile_name(pg_current_wal_lsn()), 8),
        (select d.oid from pg_database d where d.datname = current_database())
    );
exception when others then
    return null;
end
$$;

-- Those of these workers that joined another server. What they know of their runs beside the records, such
-- as which children they have started, may be gone.
create or replace function onward.moved(workers uuid[]) returns uuid[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(w.id), '{}')
    from onward.workers w
    where w.id = any (workers) and w.server <> onward.server()
$$;
