-- Wakes what is due, then gives queued runs to a worker, in one transaction that no client holds
-- open. What it took is read afterwards, by worker and ticket: a repeat finds the same. `changed`
-- is what it woke, then what it took in the order of claims.
--
-- What was claimed stays in the index of queued runs until a vacuum, and while somebody holds an old
-- snapshot each look visits it anew. So the caller may say from where on to look (`f_`, ranges in the
-- order of claims, for all that it says of a queue and workflow), and is told how far the look came
-- (`seen_`), if it read more than `p_pages_max` pages: where it took runs, and the first that it left.
-- So it is with runs that wait for a time: those that were due before `p_due_from` are not looked for.
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
    p_bytes_max bigint,
    p_pages_max bigint,
    p_due_from bigint,
    f_queue text[],
    f_workflow text[],
    f_high integer[],
    f_low integer[],
    f_due_at bigint[],
    f_id uuid[]
) returns table (
    again boolean,
    next_due bigint,
    more boolean,
    suspect boolean,
    changed uuid[],
    woken integer,
    marks uuid[],
    mark_attempts integer[],
    mark_ends boolean[],
    look_us bigint,
    seen_queue text[],
    seen_workflow text[],
    seen_priority integer[],
    seen_due_at bigint[],
    seen_id uuid[],
    seen_taken boolean[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp
-- One plan for all calls: to plan anew costs several times what a claim reads.
set enable_seqscan = off set plan_cache_mode = force_generic_plan set jit = off
-- Below the time after which the caller gives up, so that no claim waits on for a caller that is gone.
set lock_timeout = '6s' as $$
declare
    v_now bigint;
    v_woken uuid[];
    v_open boolean;
    v_taken uuid[];
    v_kept text[];
    v_began timestamptz;
    v_pages bigint;
    v_first uuid[];
    v_queue text[];
    v_workflow text[];
    v_priority integer[];
    v_due_at bigint[];
    v_limited text[];
    v_dry text[] := '{}';
    v_busy text[] := '{}';
    v_bounded uuid[];
    v_choice record;
begin
    -- A claim that a crash took back would be made again under the same lease.
    perform onward.durable();
    perform onward.assert_live(p_worker);
    -- One claim of a worker at a time: a repeat whose first try is still under way waits for it, and
    -- finds what it took. It would find nothing otherwise, and nobody would ask for those runs again.
    perform pg_advisory_xact_lock(
        ('x' || substr(k.hex, 1, 8))::bit(32)::integer, ('x' || substr(k.hex, 9, 8))::bit(32)::integer
    )
    from (select right(replace(p_worker::text, '-', ''), 16) as hex) k;
    -- Under that lock: a first try may come long after its repeat was answered, and takes nothing then.
    v_open := not exists (
        select from onward.workers w where w.id = p_worker and w.closed_ticket >= p_ticket
    );
    v_now := onward.now_ms(p_now);
    v_woken := onward.wake(p_due_from, v_now, p_wake_limit);
    v_kept := onward.claim_kept(p_build);
    if v_woken <> '{}' and f_queue <> '{}' then
        -- What was woken may have been due before what was taken, and must not wait for it.
        select array_agg(least(f.due_at, w.due_at)),
            array_agg(case when f.due_at < w.due_at then f.id
                else '00000000-0000-0000-0000-000000000000'::uuid end)
        into f_due_at, f_id
        from unnest(f_due_at, f_id) f (due_at, id)
        cross join (select min(r.due_at) as due_at from onward.runs r where r.id = any (v_woken)) w;
    end if;
    -- Queues with limits go their own way; mostly there are none. Whoever sets up one that had no row to
    -- lock waits for the claims that have not seen it, and these do not begin before it is done.
    perform pg_advisory_xact_lock_shared(hashtextextended('onward.queues', 7777));
    v_limited := array(
        select q.name from onward.queues q where q.name = any (p_queues) order by q.name
    );
    if v_limited <> '{}' then
        p_queues := array(select q from unnest(p_queues) q where q <> all (v_limited));
    end if;
    select array_agg(id order by id) into v_taken
    from onward.runs
    where state = 'running' and worker = p_worker and ticket = p_ticket;
    if v_taken is null and v_open then
        v_began := clock_timestamp();
        v_pages := onward.claim_pages();
        select
            coalesce(array_agg(f.id), '{}'), array_agg(f.queue), array_agg(f.workflow),
            array_agg(f.priority), array_agg(f.due_at)
        into v_first, v_queue, v_workflow, v_priority, v_due_at
        from (
            select c.*
            from onward.claim_first(
                p_queues, p_workflows, v_kept, p_suspect, p_limit, f_queue, f_workflow, f_high,
                f_low, f_due_at, f_id
            ) c
            order by c.priority desc, c.due_at, c.id
        ) f;
        v_taken := v_first[1:p_limit];
        if v_limited <> '{}' then
            select * into v_choice
            from onward.claim_limited(
                p_now, p_worker, v_limited, p_workflows, v_kept, p_suspect, p_limit, v_taken
            );
            v_taken := v_choice.taken;
            v_dry := v_choice.dry;
            v_busy := v_choice.busy;
        end if;
        v_bounded := onward.claim_bounded(v_taken, p_bytes_max);
        if cardinality(v_bounded) < cardinality(v_taken) then
            v_taken := v_bounded;
            v_dry := '{}';
        end if;
        if onward.claim_pages() - v_pages > p_pages_max then
            look_us := extract(epoch from clock_timestamp() - v_began) * 1000000;
            select s.* into
                seen_queue, seen_workflow, seen_priority, seen_due_at, seen_id, seen_taken
            from onward.claim_seen(
                v_queue, v_workflow, v_priority, v_due_at, v_first,
                (select count(*) from unnest(v_first) f where f = any (v_taken))::integer
            ) s;
        end if;
        if v_limited = '{}' then
            more := onward.claim_behind(v_taken[cardinality(v_taken)]);
        else
            -- Read again under the locks of the queues, so that the times of grants rise.
            v_now := onward.now_ms(p_now);
            perform onward.claim_note(v_now, v_limited, v_choice.chosen, v_taken);
        end if;
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
    v_taken := coalesce(v_taken, '{}');
    again := exists (select from onward.runs where id = any (v_taken) and attempt > 1);
    next_due := (
        select due_at from onward.runs
        where state = 'waiting' and due_at is not null and due_at >= p_due_from
        order by due_at limit 1
    );
    if more is not true then
        more := onward.claim_any(
            p_queues, p_workflows, v_kept, false, f_queue, f_workflow, f_high, f_low, f_due_at, f_id
        );
    end if;
    suspect := onward.claim_any(
        p_queues, p_workflows, v_kept, true, '{}', '{}', '{}', '{}', '{}', '{}'
    );
    if v_limited <> '{}' then
        select * into v_choice
        from onward.claim_left(
            p_now, p_worker, v_limited, p_workflows, v_kept, v_dry, v_busy
        );
        more := more or v_choice.more;
        suspect := suspect or v_choice.suspect;
        next_due := least(next_due, v_choice.look_at);
    end if;
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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

-- The pages of the index of queued runs that this transaction read so far, as the server counts them.
-- Where it does not count, every look goes from the head on.
create or replace function onward.claim_pages() returns bigint
language sql volatile as $$
    select pg_catalog.pg_stat_get_xact_blocks_fetched('onward.runs_queued'::regclass)
$$;

-- From where on to look for runs of a queue and workflow: what the caller said, or from the head.
create or replace function onward.claim_ranges(
    p_queue text,
    p_workflow text,
    f_queue text[],
    f_workflow text[],
    f_high integer[],
    f_low integer[],
    f_due_at bigint[],
    f_id uuid[]
) returns table (high integer, low integer, due_at bigint, id uuid)
language sql stable as $$
    select f.high, f.low, f.due_at, f.id
    from unnest(f_queue, f_workflow, f_high, f_low, f_due_at, f_id)
        f (queue, workflow, high, low, due_at, id)
    where f.queue = p_queue and f.workflow = p_workflow
    union all
    select
        2147483647,
        (-2147483648)::integer,
        (-9223372036854775808)::bigint,
        '00000000-0000-0000-0000-000000000000'::uuid
    where not exists (
        select
        from unnest(f_queue, f_workflow) f (queue, workflow)
        where f.queue = p_queue and f.workflow = p_workflow
    )
$$;

-- The first queued runs that a claim may take, locked. A run that another claim is about to take is
-- passed over, so that claims never wait for each other. Suspects are asked for in a query of their
-- own, here and in `claim_any`: each is answered by a partial index, which is used only for a
-- condition that is written out. Ranges are gone through in their order, until there is enough.
create or replace function onward.claim_first(
    p_queues text[],
    p_workflows text[],
    p_kept text[],
    p_suspect boolean,
    p_limit integer,
    f_queue text[],
    f_workflow text[],
    f_high integer[],
    f_low integer[],
    f_due_at bigint[],
    f_id uuid[]
) returns table (queue text, workflow text, priority integer, due_at bigint, id uuid)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if p_limit = 0 then
        return;
    end if;
    if p_suspect then
        return query
        select q, w, c.priority, c.due_at, c.id
        from unnest(p_queues) q cross join unnest(p_workflows) w cross join lateral (
            select r.priority, r.due_at, r.id
            from onward.runs r
            where r.state = 'queued' and r.crashes >= 3 and r.paused_at is null
                and (r.stuck_builds is null or r.cancel_at is not null)
                and r.queue = q and r.workflow = w
            order by r.priority desc, r.due_at, r.id
            limit p_limit
            for update skip locked
        ) c;
    else
        return query
        select q, w, c.priority, c.due_at, c.id
        from unnest(p_queues) q cross join unnest(p_workflows) w cross join lateral (
            select i.priority, i.due_at, i.id
            from onward.claim_ranges(q, w, f_queue, f_workflow, f_high, f_low, f_due_at, f_id) f
            cross join lateral (
                select r.priority, r.due_at, r.id
                from onward.runs r
                where r.state = 'queued' and r.crashes < 3 and r.paused_at is null
                    and (r.stuck_builds is null or r.cancel_at is not null)
                    and r.queue = q and r.workflow = w
                    and r.priority <= f.high and r.priority >= f.low
                    and (r.due_at, r.id) >= (f.due_at, f.id)
                order by r.priority desc, r.due_at, r.id
                limit p_limit
                for update skip locked
            ) i
            limit p_limit
        ) c;
    end if;
    if p_kept <> '{}' then
        return query
        select q, w, c.priority, c.due_at, c.id
        from unnest(p_queues) q cross join unnest(p_workflows) w cross join unnest(p_kept) k
        cross join lateral (
            select r.priority, r.due_at, r.id
            from onward.runs r
            where r.state = 'queued' and r.paused_at is null and r.stuck_builds is not null
                and r.cancel_at is null
                and r.stuck_builds = k and (r.crashes >= 3) = p_suspect
                and r.queue = q and r.workflow = w
            order by r.priority desc, r.due_at, r.id
            limit p_limit
            for update skip locked
        ) c;
    end if;
end
$$;

-- How far a look came, of what it found in the order of claims and of which the first were taken: in
-- each queue and workflow the last that was taken of each priority, and the first that was left.
create or replace function onward.claim_seen(
    p_queue text[],
    p_workflow text[],
    p_priority integer[],
    p_due_at bigint[],
    p_id uuid[],
    p_taken integer,
    out queue text[],
    out workflow text[],
    out priority integer[],
    out due_at bigint[],
    out id uuid[],
    out taken boolean[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    -- Its plan is kept, as that of a function in plain SQL is not.
    select
        coalesce(array_agg(s.queue), '{}'), coalesce(array_agg(s.workflow), '{}'),
        coalesce(array_agg(s.priority), '{}'), coalesce(array_agg(s.due_at), '{}'),
        coalesce(array_agg(s.id), '{}'), coalesce(array_agg(s.place <= p_taken), '{}')
    into queue, workflow, priority, due_at, id, taken
    from (
        select distinct on (
            f.queue, f.workflow, f.place <= p_taken,
            case when f.place <= p_taken then f.priority end
        ) f.*
        from unnest(p_queue, p_workflow, p_priority, p_due_at, p_id) with ordinality
            f (queue, workflow, priority, due_at, id, place)
        order by
            f.queue, f.workflow, f.place <= p_taken,
            case when f.place <= p_taken then f.priority end,
            case when f.place <= p_taken then -f.place else f.place end
    ) s;
end
$$;

-- The first of these runs, up to and with the one that goes past the limit of bytes: of inputs, signals and
-- histories together.
create or replace function onward.claim_bounded(p_runs uuid[], p_bytes_max bigint) returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_bounded uuid[];
begin
    -- Most have nothing but a small input, and are not looked at one by one.
    perform 1 from onward.runs where id = any (p_runs) and (attempt > 0 or signals > 0);
    if not found and (
        select coalesce(sum(octet_length(input)), 0) from onward.inputs where run = any (p_runs)
    ) <= p_bytes_max then
        return p_runs;
    end if;
    select coalesce(array_agg(s.id order by s.place), '{}') into v_bounded
    from (
        select t.id, t.place, sum(t.bytes) over (order by t.place) - t.bytes as before
        from (
            select c.id, c.place, coalesce((
                select sum(octet_length(coalesce(body, '')) + octet_length(step))
                from onward.records where run = c.id
            ), 0) + coalesce((
                select sum(octet_length(body) + octet_length(name) + octet_length(key))
                from onward.signals where run = c.id and step > ''
            ), 0) + coalesce((
                select octet_length(input) from onward.inputs where run = c.id
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
    p_suspect boolean,
    f_queue text[],
    f_workflow text[],
    f_high integer[],
    f_low integer[],
    f_due_at bigint[],
    f_id uuid[]
) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
        from unnest(p_queues) q cross join unnest(p_workflows) w
        cross join lateral onward.claim_ranges(
            q, w, f_queue, f_workflow, f_high, f_low, f_due_at, f_id
        ) f
        cross join lateral (
            select r.id
            from onward.runs r
            where r.state = 'queued' and r.crashes < 3 and r.paused_at is null
                and (r.stuck_builds is null or r.cancel_at is not null)
                and r.queue = q and r.workflow = w
                and r.priority <= f.high and r.priority >= f.low
                and (r.due_at, r.id) >= (f.due_at, f.id)
            order by r.priority desc, r.due_at, r.id
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
