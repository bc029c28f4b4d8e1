-- Wakes what is due, then gives queued runs to a worker, in one transaction that no client holds
-- open. What it took is read afterwards, by worker and ticket: a repeat finds the same. `changed`
-- is what it woke, then what it took in the order of claims.
create or replace function onward.claim(
    p_now bigint,
    p_worker uuid,
    p_ticket bigint,
    p_build text,
    p_queues text[],
    p_workflows text[],
    p_limit integer,
    p_suspect boolean,
    p_wake_limit integer,
    p_bytes_max bigint
) returns table (
    again boolean,
    next_due bigint,
    more boolean,
    suspect boolean,
    changed uuid[],
    woken integer,
    marks uuid[],
    mark_attempts integer[],
    mark_ends boolean[]
)
language plpgsql volatile
-- One plan for all calls: to plan anew costs several times what a claim reads.
set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    v_now bigint;
    v_woken uuid[];
    v_taken uuid[];
    v_kept text[];
begin
    -- A claim that a crash took back would be made again under the same lease.
    perform onward.durable();
    perform onward.assert_live(p_worker);
    v_now := onward.now_ms(p_now);
    v_woken := onward.wake(v_now, p_wake_limit);
    v_kept := onward.claim_kept(p_build);
    select array_agg(id order by id) into v_taken
    from onward.runs
    where state = 'running' and worker = p_worker and ticket = p_ticket;
    if v_taken is null then
        v_taken := onward.claim_first(p_queues, p_workflows, v_kept, p_suspect, p_limit);
        v_taken := onward.claim_bounded(v_taken, p_bytes_max);
        more := onward.claim_behind(v_taken[cardinality(v_taken)]);
        update onward.runs
        set
            state = 'running',
            attempt = attempt + 1,
            worker = p_worker,
            ticket = p_ticket,
            build = p_build,
            due_at = null,
            waits_for = null,
            started_at = coalesce(started_at, v_now)
        where id = any (v_taken);
    end if;
    again := exists (select from onward.runs where id = any (v_taken) and attempt > 1);
    next_due := (
        select due_at from onward.runs
        where state = 'waiting' and due_at is not null
        order by due_at limit 1
    );
    if more is not true then
        more := onward.claim_any(p_queues, p_workflows, v_kept, false);
    end if;
    suspect := onward.claim_any(p_queues, p_workflows, v_kept, true);
    changed := v_woken || v_taken;
    woken := cardinality(v_woken);
    -- Each in the order of its index, so that no plan walks all that the worker holds instead. No run
    -- is both: a cancel takes the pause away, and a run that is asked to end is not paused.
    select array_agg(m.id), array_agg(m.attempt), array_agg(m.ends)
    into marks, mark_attempts, mark_ends
    from (
        (
            select id, attempt, true as ends
            from onward.runs
            where state = 'running' and cancel_at is not null and worker = p_worker
            order by id
        )
        union all
        (
            select id, attempt, false
            from onward.runs
            where state = 'running' and paused_at is not null and worker = p_worker
            order by id
        )
    ) m;
    return next;
end
$$;

-- The sets of builds that some queued runs are kept off and that do not have this one. Asked from
-- set to set, it skips their runs.
create or replace function onward.claim_kept(p_build text) returns text[]
language plpgsql volatile as $$
declare
    v_kept text[] := '{}';
    v_last text := '';
begin
    loop
        select min(stuck_builds) into v_last
        from onward.runs
        where state = 'queued' and paused_at is null and cancel_at is null
            and stuck_builds is not null and stuck_builds > v_last;
        exit when v_last is null;
        if not onward.names(v_last, p_build) then
            v_kept := v_kept || v_last;
        end if;
    end loop;
    return v_kept;
end
$$;

-- The first queued runs that a claim may take, locked, in the order of claims. A run that another
-- claim is about to take is passed over, so that claims never wait for each other. Suspects are asked
-- for in a query of their own, here and in `claim_any`: each is answered by a partial index, which is
-- used only for a condition that is written out.
create or replace function onward.claim_first(
    p_queues text[],
    p_workflows text[],
    p_kept text[],
    p_suspect boolean,
    p_limit integer
) returns uuid[]
language plpgsql volatile as $$
declare
    v_first uuid[];
    v_kept uuid[];
begin
    if p_limit = 0 then
        return '{}';
    end if;
    if p_suspect then
        select coalesce(array_agg(f.id order by f.priority desc, f.due_at, f.id), '{}') into v_first
        from (
            select c.*
            from unnest(p_queues) q cross join unnest(p_workflows) w cross join lateral (
                select id, priority, due_at
                from onward.runs
                where state = 'queued' and crashes >= 3 and paused_at is null
                    and (stuck_builds is null or cancel_at is not null)
                    and queue = q and workflow = w
                order by priority desc, due_at, id
                limit p_limit
                for update skip locked
            ) c
        ) f;
    else
        select coalesce(array_agg(f.id order by f.priority desc, f.due_at, f.id), '{}') into v_first
        from (
            select c.*
            from unnest(p_queues) q cross join unnest(p_workflows) w cross join lateral (
                select id, priority, due_at
                from onward.runs
                where state = 'queued' and crashes < 3 and paused_at is null
                    and (stuck_builds is null or cancel_at is not null)
                    and queue = q and workflow = w
                order by priority desc, due_at, id
                limit p_limit
                for update skip locked
            ) c
        ) f;
    end if;
    if p_kept <> '{}' then
        select coalesce(array_agg(c.id), '{}') into v_kept
        from unnest(p_queues) q cross join unnest(p_workflows) w cross join unnest(p_kept) k
        cross join lateral (
            select id
            from onward.runs
            where state = 'queued' and paused_at is null and stuck_builds is not null
                and cancel_at is null
                and stuck_builds = k and (crashes >= 3) = p_suspect
                and queue = q and workflow = w
            order by priority desc, due_at, id
            limit p_limit
            for update skip locked
        ) c;
        select coalesce(array_agg(r.id order by r.priority desc, r.due_at, r.id), '{}') into v_first
        from onward.runs r
        where r.id = any (v_first || v_kept);
    end if;
    return v_first[1:p_limit];
end
$$;

-- The first of these runs, up to and with the one whose history goes past the limit of bytes.
create or replace function onward.claim_bounded(p_runs uuid[], p_bytes_max bigint) returns uuid[]
language plpgsql volatile as $$
declare
    v_bounded uuid[];
begin
    perform 1 from onward.runs where id = any (p_runs) and attempt > 0;
    if not found then
        return p_runs;
    end if;
    select coalesce(array_agg(s.id order by s.place), '{}') into v_bounded
    from (
        select t.id, t.place, sum(t.bytes) over (order by t.place) - t.bytes as before
        from (
            select c.id, c.place, coalesce((
                select sum(octet_length(coalesce(body, '')) + octet_length(step))
                from onward.records where run = c.id
            ), 0) as bytes
            from unnest(p_runs) with ordinality c (id, place)
        ) t
    ) s
    where s.before <= p_bytes_max;
    return v_bounded;
end
$$;

-- Whether a queued run is right behind this one, so that nobody need look from the head on: before
-- its next vacuum the index has there what was claimed since the last, and each look walks over it.
create or replace function onward.claim_behind(p_run uuid) returns boolean
language plpgsql volatile as $$
declare
    v_run record;
begin
    select queue, workflow, priority, due_at into v_run from onward.runs where id = p_run;
    if not found then
        return false;
    end if;
    perform 1
    from onward.runs
    where state = 'queued' and crashes < 3 and paused_at is null
        and (stuck_builds is null or cancel_at is not null)
        and queue = v_run.queue and workflow = v_run.workflow and priority = v_run.priority
        and (due_at, id) > (v_run.due_at, p_run)
    order by due_at, id
    limit 1;
    return found;
end
$$;

-- Whether a queued run is left that a claim could take. Asked for the first one in the order of its
-- index, because a plan for any one may read the whole table when it expects many.
create or replace function onward.claim_any(
    p_queues text[],
    p_workflows text[],
    p_kept text[],
    p_suspect boolean
) returns boolean
language plpgsql volatile as $$
begin
    if p_suspect then
        perform 1
        from unnest(p_queues) q cross join unnest(p_workflows) w cross join lateral (
            select id
            from onward.runs
            where state = 'queued' and crashes >= 3 and paused_at is null
                and (stuck_builds is null or cancel_at is not null)
                and queue = q and workflow = w
            order by priority desc, due_at, id
            limit 1
        ) c
        limit 1;
    else
        perform 1
        from unnest(p_queues) q cross join unnest(p_workflows) w cross join lateral (
            select id
            from onward.runs
            where state = 'queued' and crashes < 3 and paused_at is null
                and (stuck_builds is null or cancel_at is not null)
                and queue = q and workflow = w
            order by priority desc, due_at, id
            limit 1
        ) c
        limit 1;
    end if;
    if found or p_kept = '{}' then
        return found;
    end if;
    perform 1
    from unnest(p_queues) q cross join unnest(p_workflows) w cross join unnest(p_kept) k
    cross join lateral (
        select id
        from onward.runs
        where state = 'queued' and paused_at is null and stuck_builds is not null
            and cancel_at is null
            and stuck_builds = k and (crashes >= 3) = p_suspect
            and queue = q and workflow = w
        order by priority desc, due_at, id
        limit 1
    ) c
    limit 1;
    return found;
end
$$;
