-- Answers starts whose key is in use by a run with the same input, and that are content with it:
-- each is counted and kept as a duplicate, once. The rest is left out, with nothing written.
create or replace function onward.start_met(
    p_now bigint,
    s_id uuid[],
    s_workflow text[],
    s_key text[],
    s_fingerprint bytea[],
    s_caller text[],
    p_kept integer
) returns table (id uuid, run uuid, at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '3s' as $$
declare
    v_now bigint;
    v_id uuid[];
    v_run uuid[];
    v_at bigint[];
    v_caller text[];
    v_full uuid[];
    v_added bigint;
    v_counted bigint;
begin
    perform onward.durable();
    v_now := onward.now_ms(p_now);
    select array_agg(s.id), array_agg(k.run), array_agg(r.created_at), array_agg(s.caller)
    into v_id, v_run, v_at, v_caller
    from unnest(s_id, s_workflow, s_key, s_fingerprint, s_caller)
        s (id, workflow, key, fingerprint, caller)
    join onward.keys k on k.workflow = s.workflow and k.key = s.key
    join onward.runs r on r.id = k.run
    where k.fingerprint = s.fingerprint and (k.expires_at is null or k.expires_at > v_now)
        and not exists (select from onward.runs o where o.id = s.id);
    if v_id is null then
        return;
    end if;
    with added as (
        insert into onward.duplicates (run, start, at, caller, same_input)
        select m.run, m.id, v_now, m.caller, true
        from unnest(v_run, v_id, v_caller) m (run, id, caller)
        on conflict do nothing
        returning duplicates.run
    ), counted as (
        update onward.runs r
        set duplicates = r.duplicates + a.count
        from (select d.run, count(*) as count from added d group by d.run order by d.run) a
        where r.id = a.run
        returning r.id, r.duplicates
    )
    select
        coalesce(array_agg(c.id) filter (where c.duplicates > p_kept), '{}'),
        count(*),
        (select count(distinct d.run) from added d)
    into v_full, v_counted, v_added
    from counted c;
    if v_counted < v_added then
        -- A prune took the run meanwhile, and these would stay for good.
        delete from onward.duplicates d
        where d.start = any (v_id) and d.run = any (v_run)
            and not exists (select from onward.runs r where r.id = d.run);
    end if;
    delete from onward.duplicates d
    where d.no = any (array(
        select x.no
        from unnest(v_full) f (run) cross join lateral (
            select o.no from onward.duplicates o where o.run = f.run order by o.no desc offset p_kept
        ) x
    ));
    return query select m.id, m.run, m.at from unnest(v_id, v_run, v_at) m (id, run, at);
end
$$;
