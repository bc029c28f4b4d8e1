-- Deletes a bounded batch of runs that ended so long ago, by the database's own time: a client's may be wrong,
-- and what is deleted is gone. With all that belongs to them. Runs that
-- somebody else works on are passed over, and so are those whose children are still to be asked to end:
-- nobody else would.
-- With the id of a run only that one, however long ago it ended.
create or replace function onward.prune(
    p_now bigint, p_older_than_ms bigint, p_states text[], p_limit integer, p_run uuid
)
returns table (runs bigint, more boolean)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
-- Below the time after which the caller gives up: see `claim`.
set lock_timeout = '6s' as $$
declare
    v_old uuid[];
    v_found integer;
    v_ended_by bigint := onward.now_ms(p_now) - p_older_than_ms;
begin
    select coalesce(array_agg(o.id order by o.finished_at, o.id), '{}') into v_old
    from (
        select f.id, f.finished_at
        from unnest(p_states) s cross join lateral (
            select r.id, r.finished_at
            from onward.runs r
            where r.finished_at is not null and r.state = s and r.finished_at <= v_ended_by
                and (r.cascades is null or onward.prune_alone(r.id, r.continued_from))
            order by r.finished_at, r.id
            limit p_limit + 1
            for update skip locked
        ) f
        order by f.finished_at, f.id
        limit p_limit + 1
    ) o;
    if p_run is not null then
        select coalesce(array_agg(r.id), '{}') into v_old
        from (
            select id
            from onward.runs
            where id = p_run and finished_at is not null
                and (cascades is null or onward.prune_alone(id, continued_from))
            for update
        ) r;
    end if;
    v_found := cardinality(v_old);
    v_old := onward.prune_bounded(v_old[1:p_limit]);
    more := v_found > cardinality(v_old);
    delete from onward.keys k
    using onward.runs r
    where r.id = any (v_old) and k.workflow = r.workflow and k.key = r.key and k.run = r.id;
    delete from onward.tags t
    using onward.inputs i cross join lateral onward.tags_of(i.tags) g
    where i.run = any (v_old) and i.tags is not null
        and t.name = g.name and t.value = g.value and t.run = i.run;
    delete from onward.inputs where run = any (v_old);
    delete from onward.outputs where run = any (v_old);
    delete from onward.records where run = any (v_old);
    delete from onward.attempts where run = any (v_old);
    delete from onward.duplicates where run = any (v_old);
    delete from onward.signals where run = any (v_old);
    delete from onward.log where run = any (v_old);
    delete from onward.runs where id = any (v_old);
    runs := cardinality(v_old);
    return next;
end
$$;

-- The first of these runs that have 5,000 rows together (PRUNE_ROWS_MAX), or more if it is one alone.
create or replace function onward.prune_bounded(p_runs uuid[]) returns uuid[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    v_runs uuid[] := '{}';
    v_run uuid;
    v_rows bigint := 0;
begin
    foreach v_run in array p_runs loop
        exit when v_rows >= 5000;
        v_rows := v_rows
            + (select count(*) from onward.records r where r.run = v_run)
            + (select count(*) from onward.signals s where s.run = v_run)
            + (select count(*) from onward.log l where l.run = v_run);
        v_runs := v_runs || v_run;
    end loop;
    return v_runs;
end
$$;

-- Whether a run that was asked to end has nobody left to ask: no children, and no run that it goes on from.
create or replace function onward.prune_alone(p_run uuid, p_before uuid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return p_before is null and not exists (
        select from onward.runs c
        where c.parent = p_run and c.parent is not null and c.finished_at is null
            and not c.detached and c.cancel_at is null
    );
end
$$;

-- The tags of a run. Those that cannot be read are none: they leave entries behind that no list shows.
create or replace function onward.tags_of(tags text) returns table (name text, value text)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return query select t.key, t.value from json_each_text(tags::json) t;
exception when others then
    return;
end
$$;
