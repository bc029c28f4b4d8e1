-- Starts runs, each with its key, in one transaction that no client holds open. Answers those that
-- it started. A start whose key or id is there already is left out, with nothing written: it is
-- made on its own, by what its policy says.
create or replace function onward.start_runs(
    p_now bigint,
    p_workers uuid[],
    s_id uuid[],
    s_workflow text[],
    s_queue text[],
    s_priority integer[],
    s_input text[],
    s_tags text[],
    s_after bigint[],
    s_at bigint[],
    s_timeout bigint[],
    s_key text[],
    s_fingerprint bytea[],
    s_ttl bigint[],
    s_worker uuid[],
    s_build text[],
    t_run uuid[],
    t_name text[],
    t_value text[],
    c_id uuid[],
    c_parent uuid[],
    c_worker uuid[],
    c_attempt integer[],
    c_step text[],
    c_detached boolean[],
    s_lane text[]
) returns table (id uuid, claimed boolean, at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp
-- One plan for all calls: to plan anew costs several times what a start reads.
set enable_seqscan = off set plan_cache_mode = force_generic_plan set jit = off
-- It must not keep the fence, nor hold up its lane, for a stranger's lock: then each is made alone.
set lock_timeout = '3s' as $$
declare
    v_now bigint;
    v_new uuid[];
    v_keyed uuid[];
    v_live uuid[];
    v_limited text[];
begin
    perform onward.durable();
    perform onward.fence(p_workers);
    v_now := onward.now_ms(p_now);
    select coalesce(array_agg(s.id), '{}') into v_new
    from unnest(s_id, s_key) s (id, key)
    where s.key is null and not exists (select from onward.runs r where r.id = s.id);
    if cardinality(v_new) < cardinality(s_id) then
        with keyed as (
            insert into onward.keys (workflow, key, run, fingerprint, expires_at)
            select s.workflow, s.key, s.id, s.fingerprint, v_now + s.ttl
            from unnest(s_id, s_workflow, s_key, s_fingerprint, s_ttl) with ordinality
                s (id, workflow, key, fingerprint, ttl, place)
            where s.key is not null and not exists (select from onward.runs r where r.id = s.id)
            -- Of two with one key the first has it.
            order by s.workflow, s.key, s.place
            on conflict do nothing
            returning run
        )
        select coalesce(array_agg(k.run), '{}') into v_keyed from keyed k;
        v_new := v_new || v_keyed;
    end if;
    if cardinality(c_id) > 0 then
        -- A cancel of a parent comes before all of this or after it: a child that it does not see
        -- would not be asked to end.
        perform from onward.runs p where p.id = any (c_parent) order by p.id for share;
        -- A child is started only under the lease of who holds its parent.
        select coalesce(array_agg(n), '{}') into v_new
        from unnest(v_new) n
        where not exists (
            select from unnest(c_id, c_parent, c_worker, c_attempt) c (id, parent, worker, attempt)
            where c.id = n and not exists (
                select from onward.runs p join onward.workers k on k.id = p.worker
                where p.id = c.parent and p.state = 'running' and p.worker = c.worker
                    and p.attempt = c.attempt and k.lost_at is null
            )
        );
    end if;
    if v_new = '{}' then
        return;
    end if;
    if cardinality(v_new) < cardinality(s_id) then
        -- What is left is started.
        select
            array_agg(s.id), array_agg(s.workflow), array_agg(s.queue), array_agg(s.priority),
            array_agg(s.input), array_agg(s.tags), array_agg(s.after), array_agg(s.at),
            array_agg(s.timeout), array_agg(s.key), array_agg(s.worker), array_agg(s.build),
            array_agg(s.lane)
        into
            s_id, s_workflow, s_queue, s_priority, s_input, s_tags, s_after, s_at, s_timeout,
            s_key, s_worker, s_build, s_lane
        from unnest(
            s_id, s_workflow, s_queue, s_priority, s_input, s_tags, s_after, s_at, s_timeout,
            s_key, s_worker, s_build, s_lane
        ) s (
            id, workflow, queue, priority, input, tags, after, at, timeout, key, worker, build,
            lane
        )
        where s.id = any (v_new);
    end if;
    insert into onward.inputs (run, input, tags)
    select unnest(s_id), unnest(s_input), unnest(s_tags);
    if cardinality(t_run) > 0 then
        insert into onward.tags (name, value, run)
        select t.name, t.value, t.run
        from unnest(t_run, t_name, t_value) t (run, name, value)
        where t.run = any (v_new);
    end if;
    -- Asked once and not for each run: under the fence nobody marks them lost.
    v_live := array(
        select k.id from onward.workers k where k.id = any (p_workers) and k.lost_at is null
    );
    -- Of a queue that is set up nothing is taken but by a claim. Who sets one up for the first time waits for
    -- those that did not see it, as for claims.
    if exists (select from unnest(s_worker) w (id) where w.id is not null) then
        perform pg_advisory_xact_lock_shared(hashtextextended('onward.queues', 7777));
    end if;
    v_limited := array(select q.name from onward.queues q where q.name = any (s_queue));
    return query
    insert into onward.runs (
        id, state, attempt, worker, wakes, crashes, priority, due_at, workflow, queue, build,
        waits_for, key, created_at, started_at, deadline_at, duplicates, lane, notes
    )
    select
        s.id,
        case when s.is_later then 'waiting' when s.is_held then 'running' else 'queued' end,
        case when s.is_held then 1 else 0 end,
        case when s.is_held then s.worker end,
        0,
        0,
        s.priority,
        case when not s.is_held then s.start end,
        s.workflow,
        s.queue,
        case when s.is_held then s.build end,
        case when s.is_later then '{"for":"start"}' end,
        s.key,
        v_now,
        case when s.is_held then v_now end,
        s.start + s.timeout,
        0,
        nullif(s.lane, ''),
        case when s.is_later then json_build_object('start_at', s.start)::text end
    from (
        select
            t.*,
            t.start > v_now as is_later,
            t.start <= v_now and coalesce(t.worker = any (v_live), false)
                and not t.queue = any (v_limited) as is_held
        from (
            select u.*, greatest(coalesce(u.at, v_now + coalesce(u.after, 0)), v_now) as start
            from (
                select
                    unnest(s_id) as id, unnest(s_workflow) as workflow, unnest(s_queue) as queue,
                    unnest(s_priority) as priority, unnest(s_after) as after, unnest(s_at) as at,
                    unnest(s_timeout) as timeout, unnest(s_key) as key,
                    unnest(s_worker) as worker, unnest(s_build) as build, unnest(s_lane) as lane
            ) u
        ) t
        -- Computed once for each, and not wherever it is used.
        offset 0
    ) s
    returning runs.id, runs.worker is not null, v_now;
    if cardinality(c_id) > 0 then
        -- A child ends no later than its parent, unless it is detached.
        update onward.runs r
        set
            parent = c.parent,
            parent_step = c.step,
            detached = c.detached,
            deadline_at = case
                when c.detached then r.deadline_at
                else least(r.deadline_at, p.deadline_at)
            end,
            -- What it would have without its parent's deadline, for a retry.
            notes = case
                when c.detached or p.deadline_at is null or p.deadline_at >= r.deadline_at
                then r.notes
                else jsonb_set(
                    coalesce(r.notes, '{}')::jsonb,
                    '{own_time_ms}',
                    to_jsonb(coalesce(
                        r.deadline_at - coalesce(
                            (r.notes::jsonb ->> 'start_at')::bigint, r.created_at
                        ),
                        0
                    ))
                )::text
            end
        from unnest(c_id, c_parent, c_step, c_detached) c (id, parent, step, detached)
        join onward.runs p on p.id = c.parent
        where r.id = c.id and r.id = any (v_new);
        -- Children that are started though their parent is asked to end are asked too.
        update onward.runs p
        set cascades = true
        where p.id = any (c_parent) and p.cancel_at is not null and p.cascades is null;
    end if;
end
$$;
