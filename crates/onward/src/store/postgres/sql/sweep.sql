-- Marks dead workers lost, queues the runs of lost or missing workers, wakes what is due, queues
-- stuck runs that this worker's build may mend, and forgets workers that were lost long ago. Answers
-- which runs are past their deadline and which children are to be asked to end: these are writes of
-- their own.
create or replace function onward.sweep(
    p_now bigint,
    p_worker uuid,
    p_take_expired boolean,
    p_limit integer,
    p_lost_kept bigint,
    p_children_limit integer
) returns table (
    lost uuid[],
    taken uuid[],
    woken integer,
    changed uuid[],
    more boolean,
    next_at bigint,
    children uuid[],
    late uuid[]
)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
-- Below the time after which the caller gives up: see `claim`.
set lock_timeout = '6s' as $$
declare
    v_now bigint;
    v_woken uuid[];
    v_mended uuid[];
begin
    perform 1 from onward.workers w where w.id = p_worker and w.lost_at is null;
    if not found then
        raise exception 'the worker is lost' using errcode = 'OW003';
    end if;
    v_now := onward.now_ms(p_now);
    lost := '{}';
    if p_take_expired then
        lost := onward.sweep_lost(v_now, p_worker);
    end if;
    taken := onward.sweep_taken(v_now, p_worker, p_limit);
    v_woken := onward.wake((-9223372036854775808)::bigint, v_now, p_limit);
    late := onward.sweep_late(v_now, p_children_limit);
    v_mended := onward.sweep_mended(v_now, p_worker, p_limit);
    delete from onward.workers
    where id = any (array(
        select w.id
        from onward.workers w
        where w.lost_at < v_now - p_lost_kept
            and not exists (
                select from onward.runs r where r.state = 'running' and r.worker = w.id
            )
        limit p_limit
    ));
    children := onward.sweep_children(p_children_limit);
    woken := cardinality(v_woken);
    changed := taken || v_woken || v_mended;
    -- Told in the transaction: whoever sweeps may die before it can tell.
    if changed <> '{}' then
        perform onward.tell_work();
    end if;
    more := children <> '{}' or cardinality(late) >= p_children_limit or p_limit <= greatest(
        cardinality(taken), cardinality(v_woken), cardinality(v_mended)
    );
    -- The leases of others; with nobody else, one that is entered now expires no sooner than this
    -- worker's own, as long as theirs are alike. And the next deadline of a run that nobody holds.
    next_at := least(
        coalesce(
            (
                select min(w.lease_until)
                from onward.workers w
                where w.lost_at is null and w.id <> p_worker
            ),
            (select w.lease_until from onward.workers w where w.id = p_worker)
        ),
        (
            select r.deadline_at
            from onward.runs r
            where r.deadline_at is not null
                and r.deadline_at > v_now
                and r.late_at is distinct from r.deadline_at
                and r.cancel_at is null
                and (r.state = 'queued' or r.state = 'waiting')
                and (r.stuck is null or r.stuck <> 'corrupt_record')
            order by r.deadline_at, r.id
            limit 1
        )
    );
    return next;
end
$$;

-- Marks workers lost whose lease has expired. The fence is taken alone, so what they were writing
-- is committed or will be refused; then the lease is looked at again.
create or replace function onward.sweep_lost(p_now bigint, p_worker uuid) returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_worker uuid;
    v_lost uuid[] := '{}';
begin
    for v_worker in
        select w.id from onward.workers w
        where w.lost_at is null and w.id <> p_worker
            and (w.lease_until < p_now or w.lease_until > p_now + 2 * w.lease_ms)
            and exists (
                select from onward.workers own
                where own.id = p_worker and own.lease_until <= p_now + 2 * own.lease_ms
            )
        order by onward.fence_key(w.id)
    loop
        perform pg_advisory_xact_lock(onward.fence_key(v_worker));
        update onward.workers w
        set lost_at = p_now
        where w.id = v_worker and w.lost_at is null
            and (w.lease_until < p_now or w.lease_until > p_now + 2 * w.lease_ms);
        if found then
            v_lost := v_lost || v_worker;
        end if;
    end loop;
    return v_lost;
end
$$;

-- Takes runs from lost or missing workers. An attempt that left a record made progress; otherwise
-- its loss counts as a crash. From the third in a row on the run is a suspect and pauses, at the
-- tenth it is stuck. One that somebody asked to end pauses, and never waits for anybody.
create or replace function onward.sweep_taken(p_now bigint, p_worker uuid, p_limit integer)
returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_holders uuid[] := '{}';
    v_last uuid;
    v_taken uuid[];
begin
    select worker into v_last from onward.runs
    where state = 'running' and worker is not null order by worker limit 1;
    while v_last is not null loop
        perform 1 from onward.workers w where w.id = v_last and w.lost_at is null;
        if not found and v_last <> p_worker then
            v_holders := v_holders || v_last;
        end if;
        select worker into v_last from onward.runs
        where state = 'running' and worker > v_last order by worker limit 1;
    end loop;
    if v_holders = '{}' then
        return '{}';
    end if;
    select coalesce(array_agg(t.id order by t.id), '{}') into v_taken
    from (
        select id from onward.runs
        where state = 'running' and worker = any (v_holders)
        order by id
        limit p_limit
        for update skip locked
    ) t;
    insert into onward.attempts (run, attempt, build, settled)
    select r.id, r.attempt, coalesce(r.build, ''), null
    from onward.runs r
    where r.id = any (v_taken)
    on conflict (run, attempt) do update
    set build = excluded.build, settled = excluded.settled;
    update onward.runs r
    set
        state = case when c.held_back then 'waiting' else 'queued' end,
        worker = null,
        ticket = null,
        wakes = r.wakes + 1,
        crashes = c.crashes,
        due_at = case
            when c.is_stuck then null
            when c.held_back then p_now + least(1000 * (1 << least(c.crashes - 3, 10)), 60000)
            else p_now
        end,
        waits_for = case
            when c.is_stuck then json_build_object(
                'for', 'stuck', 'code', 'crash_loop', 'detail',
                c.crashes || ' workers in a row died in this run without a record'
            )::text
            when c.held_back then json_build_object('for', 'backoff', 'crashes', c.crashes)::text
        end,
        stuck = case when c.is_stuck then 'crash_loop' end,
        stuck_builds = case
            when c.is_stuck then onward.with_build(r.stuck_builds, r.build)
            else r.stuck_builds
        end
    from (
        select
            l.id,
            l.crashes,
            l.crashes >= 3 as held_back,
            l.crashes >= 10 and l.cancel_at is null
                and (l.deadline_at is null or l.deadline_at > p_now) as is_stuck
        from (
            select i.id, i.cancel_at, i.deadline_at, case
                when exists (
                    select from onward.records d where d.run = i.id and d.attempt = i.attempt
                )
                then 0 else i.crashes + 1
            end as crashes
            from onward.runs i
            where i.id = any (v_taken)
        ) l
    ) c
    where r.id = c.id;
    return v_taken;
end
$$;

-- Runs that nobody holds whose deadline has passed, the longest first, but for those for which a sweep
-- has seen that: whoever sweeps ends them, one by one. Those that are asked to end do so; what cannot be
-- read cannot be ended.
create or replace function onward.sweep_late(p_now bigint, p_limit integer) returns uuid[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array(
        select r.id
        from onward.runs r
        where r.deadline_at is not null
            and r.deadline_at <= p_now
            and r.late_at is distinct from r.deadline_at
            and r.cancel_at is null
            and (r.state = 'queued' or r.state = 'waiting')
            and (r.stuck is null or r.stuck <> 'corrupt_record')
        order by r.deadline_at, r.id
        limit p_limit
    )
$$;

-- Queues stuck runs that the sweeper serves, if its build is not one they got stuck under. Runs
-- that are stuck under the same builds stand together in their index, so those that the sweeper
-- may not mend cost one step however many they are.
create or replace function onward.sweep_mended(p_now bigint, p_worker uuid, p_limit integer)
returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_worker record;
    v_last text := '';
    v_found uuid[] := '{}';
    v_mended uuid[];
begin
    loop
        select min(stuck_builds) into v_last
        from onward.runs where stuck is not null and stuck_builds > v_last;
        exit when v_last is null or cardinality(v_found) >= p_limit;
        if v_worker is null then
            select
                w.build,
                array(select json_array_elements_text(w.queues::json)) as queues,
                array(select json_array_elements_text(w.workflows::json)) as workflows
            into v_worker
            from onward.workers w
            where w.id = p_worker;
        end if;
        if not onward.names(v_last, v_worker.build) then
            v_found := v_found || array(
                select k.id
                from unnest(v_worker.queues) q cross join unnest(v_worker.workflows) w
                -- Each queue and workflow by itself: asked for all at once in the order of ids, no plan
                -- reads their index for less than all that is stuck.
                cross join lateral (
                    select r.id
                    from onward.runs r
                    where r.stuck is not null
                        and r.stuck_builds = v_last
                        and r.queue = q
                        and r.workflow = w
                    order by r.id
                    limit p_limit
                    for update skip locked
                ) k
                limit p_limit
            );
        end if;
    end loop;
    if v_found = '{}' then
        return v_found;
    end if;
    with mended as (
        update onward.runs
        set
            state = 'queued',
            worker = null,
            ticket = null,
            due_at = p_now,
            waits_for = null,
            stuck = null,
            wakes = wakes + 1,
            crashes = 0
        where id = any (v_found[1:p_limit])
        returning id
    )
    select coalesce(array_agg(id), '{}') into v_mended from mended;
    return v_mended;
end
$$;

-- Children of cancelled runs that nobody has asked to end: whoever sweeps asks them, one by one. When
-- there are no more, a cancelled run is forgotten, and the run that went on as it is looked at instead,
-- which may have left children too.
create or replace function onward.sweep_children(p_limit integer) returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off as $$
declare
    v_children uuid[];
    v_before uuid[];
begin
    perform 1 from onward.runs p where p.cascades is not null limit 1;
    if not found then
        return '{}';
    end if;
    for v_back in 1..1000 loop
        select coalesce(array_agg(u.id), '{}') into v_children
        from (
            -- From the parents, which are few: no plan may walk all the runs that are some run's child.
            select k.id
            from (
                select q.id from onward.runs q where q.cascades is not null order by q.id
            ) p
            cross join lateral (
                select c.id
                from onward.runs c
                where c.parent = p.id and c.parent is not null and c.finished_at is null
                    and not c.detached and c.cancel_at is null
                order by c.id
                limit p_limit
            ) k
            limit p_limit
        ) u;
        exit when v_children <> '{}';
        -- Looked at once more, by the statement that forgets it: one that was cancelled since may have
        -- children that nobody was asked about.
        with forgotten as (
            update onward.runs p
            set cascades = null
            where p.id = any (array(
                select q.id from onward.runs q
                where q.cascades is not null
                    and not exists (
                        select from onward.runs c
                        where c.parent = q.id and c.parent is not null and c.finished_at is null
                            and not c.detached and c.cancel_at is null
                    )
                order by q.id
                limit p_limit
                for update skip locked
            ))
            returning p.continued_from
        )
        select array_agg(f.continued_from order by f.continued_from) into v_before
        from forgotten f
        where f.continued_from is not null;
        exit when v_before is null;
        update onward.runs b set cascades = true where b.id = any (v_before);
    end loop;
    return v_children;
end
$$;
