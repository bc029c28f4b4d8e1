-- Claiming from queues that have limits or are paused. A claim locks the row of each such queue, so
-- that claims from it come one after the other, and counts what is running in statements after that:
-- they see what was committed before. Whoever settles or is swept only makes room, and locks nothing.

-- How many runs the limits of the whole queue leave room for, and when the rate leaves more.
create or replace function onward.claim_room(p_now bigint, p_worker uuid, p_queue text)
returns table (room bigint, look_at bigint, per_lane integer, last_lane text)
language plpgsql volatile as $$
declare
    v_queue record;
    v_now bigint;
    v_count bigint;
    v_first bigint;
begin
    room := 2147483647;
    select * into v_queue from onward.queues q where q.name = p_queue;
    -- Somebody took its limits away meanwhile.
    if not found then
        return next;
        return;
    end if;
    per_lane := v_queue.per_lane;
    last_lane := v_queue.last_lane;
    if v_queue.paused_at is not null then
        room := 0;
        return next;
        return;
    end if;
    if v_queue.concurrency is not null then
        select count(*) into v_count
        from (
            select 1 from onward.runs
            where state = 'running' and queue = p_queue
            limit v_queue.concurrency
        ) r;
        room := least(room, v_queue.concurrency - v_count);
    end if;
    if v_queue.per_worker is not null then
        select count(*) into v_count
        from onward.runs
        where state = 'running' and worker = p_worker and queue = p_queue;
        room := least(room, v_queue.per_worker - v_count);
    end if;
    if v_queue.rate_count is not null then
        v_now := onward.now_ms(p_now);
        select coalesce(sum(g.count), 0), min(g.at) into v_count, v_first
        from onward.grants g
        where g.queue = p_queue and g.at > v_now - v_queue.rate_period_ms;
        if v_count >= v_queue.rate_count then
            look_at := v_first + v_queue.rate_period_ms;
        end if;
        room := least(room, v_queue.rate_count - v_count);
    end if;
    return next;
end
$$;

-- Lanes of a queue that have queued runs, by name, after one and up to another. Goes from lane to
-- lane, and skips their runs.
create or replace function onward.claim_walk(
    p_queue text,
    p_workflows text[],
    p_after text,
    p_upto text,
    p_looks integer
) returns table (lane text, place integer)
language sql stable as $$
    with recursive walk (lane, place) as (
        select p_after collate "C", 0
        union all
        select
            (
                select min(n.lane)
                from unnest(p_workflows) f cross join lateral (
                    select r.lane
                    from onward.runs r
                    where r.state = 'queued' and r.lane is not null and r.crashes < 3
                        and r.paused_at is null
                        and (r.stuck_builds is null or r.cancel_at is not null)
                        and r.queue = p_queue and r.workflow = f and r.lane > w.lane
                    order by r.lane
                    limit 1
                ) n
            ),
            w.place + 1
        from walk w
        where w.lane is not null and w.place < p_looks
            and (p_upto is null or w.lane < p_upto collate "C")
    )
    select w.lane, w.place
    from walk w
    where w.place > 0 and w.lane is not null and (p_upto is null or w.lane <= p_upto collate "C")
$$;

-- Lanes that have room, after the last one and around, as many as are needed to give each a run. Runs
-- without a lane are those of the lane with the empty name, which is not limited. When it gave up
-- looking with nothing found, it says where.
create or replace function onward.claim_lanes(
    p_queue text,
    p_workflows text[],
    p_per_lane integer,
    p_last text,
    p_limit integer,
    p_looks integer
) returns table (lanes text[], free integer[], cut_at text)
language plpgsql volatile as $$
declare
    v_after text;
    v_upto text;
    v_lanes text[];
    v_free integer[];
    v_cut text;
begin
    lanes := '{}';
    free := '{}';
    for v_after, v_upto in
        select a.after, a.upto
        from (values (1, p_last, null), (2, '', p_last)) a (place, after, upto)
        where a.after is not null
        order by a.place
    loop
        if v_after = '' and v_upto is not distinct from p_last then
            perform 1
            from onward.claim_laneless(p_queue, p_workflows, 100, 1) l
            where l.id is not null;
            if found then
                lanes := lanes || ''::text;
                free := free || p_limit;
            end if;
        end if;
        exit when cardinality(lanes) >= p_limit;
        continue when v_upto = '';
        select array_agg(o.lane order by o.place), array_agg(o.free order by o.place)
        into v_lanes, v_free
        from (
            select w.lane, w.place, c.free
            from onward.claim_walk(p_queue, p_workflows, v_after, v_upto, p_looks) w
            cross join lateral (
                select (p_per_lane - count(*))::integer as free
                from (
                    select 1 from onward.runs r
                    where r.state = 'running' and r.queue = p_queue and r.lane = w.lane
                    limit p_per_lane
                ) r
            ) c
            where c.free > 0
            limit p_limit - cardinality(lanes)
        ) o;
        lanes := lanes || coalesce(v_lanes, '{}');
        free := free || coalesce(v_free, '{}');
        exit when cardinality(lanes) >= p_limit;
        if v_lanes is null then
            select w.lane into v_cut
            from onward.claim_walk(p_queue, p_workflows, v_after, v_upto, p_looks) w
            where w.place = p_looks;
            cut_at := coalesce(cut_at, v_cut);
        end if;
    end loop;
    if lanes <> '{}' then
        cut_at := null;
    end if;
    return next;
end
$$;

-- Ordinary queued runs without a lane, in the order of claims. Looks no further than at so many.
create or replace function onward.claim_laneless(
    p_queue text,
    p_workflows text[],
    p_looks integer,
    p_limit integer
) returns table (id uuid, priority integer, due_at bigint)
language sql stable as $$
    select n.id, n.priority, n.due_at
    from unnest(p_workflows) f cross join lateral (
        select r.id, r.priority, r.due_at, r.lane
        from onward.runs r
        where r.state = 'queued' and r.crashes < 3 and r.paused_at is null
            and (r.stuck_builds is null or r.cancel_at is not null)
            and r.queue = p_queue and r.workflow = f
        order by r.priority desc, r.due_at, r.id
        limit p_looks
    ) n
    where n.lane is null
    order by n.priority desc, n.due_at, n.id
    limit p_limit
$$;

-- Runs of these lanes in turn: one of each, then a second one of each that has room, and so on. In a
-- lane those come first that have begun, then by priority, then who is longest due.
create or replace function onward.claim_in_turn(
    p_queue text,
    p_workflows text[],
    p_lanes text[],
    p_free integer[],
    p_limit integer
) returns uuid[]
language plpgsql volatile as $$
declare
    v_runs uuid[] := '{}';
    v_before integer := -1;
    v_share integer;
begin
    if p_lanes = '{}' then
        return v_runs;
    end if;
    v_share := 1 + (p_limit - 1) / cardinality(p_lanes);
    while cardinality(v_runs) < p_limit and cardinality(v_runs) > v_before loop
        v_before := cardinality(v_runs);
        select coalesce(array_agg(c.id order by c.turn, c.place), '{}') into v_runs
        from (
            select n.id, n.turn, l.place
            from unnest(p_lanes, p_free) with ordinality l (lane, free, place)
            cross join lateral (
                select q.id, row_number() over (
                    order by q.fresh, q.priority desc, q.due_at, q.id
                ) as turn
                from (
                    select r.id, r.fresh, r.priority, r.due_at
                    from unnest(p_workflows) f cross join lateral (
                        select o.id, o.started_at is null as fresh, o.priority, o.due_at
                        from onward.runs o
                        where o.state = 'queued' and o.lane is not null and o.crashes < 3
                            and o.paused_at is null
                            and (o.stuck_builds is null or o.cancel_at is not null)
                            and o.queue = p_queue and o.workflow = f and o.lane = l.lane
                        order by (o.started_at is null), o.priority desc, o.due_at, o.id
                        limit least(l.free, v_share)
                    ) r
                    union all
                    select s.id, true, s.priority, s.due_at
                    from onward.claim_laneless(p_queue, p_workflows, 100, v_share) s
                    where l.lane = ''
                ) q
                order by q.fresh, q.priority desc, q.due_at, q.id
                limit least(l.free, v_share)
            ) n
            order by n.turn, l.place
            limit p_limit
        ) c;
        v_share := v_share * 2;
    end loop;
    return v_runs;
end
$$;

-- Suspects, or runs that are kept off some builds, in the order of claims. Not locked.
create or replace function onward.claim_rare(
    p_queue text,
    p_workflows text[],
    p_kept text[],
    p_suspect boolean,
    p_looks integer
) returns uuid[]
language plpgsql volatile as $$
declare
    v_runs uuid[] := '{}';
    v_kept uuid[] := '{}';
begin
    if p_suspect then
        select coalesce(array_agg(c.id), '{}') into v_runs
        from unnest(p_workflows) w cross join lateral (
            select id
            from onward.runs
            where state = 'queued' and crashes >= 3 and paused_at is null
                and (stuck_builds is null or cancel_at is not null)
                and queue = p_queue and workflow = w
            order by priority desc, due_at, id
            limit p_looks
        ) c;
    end if;
    if p_kept <> '{}' then
        select coalesce(array_agg(c.id), '{}') into v_kept
        from unnest(p_workflows) w cross join unnest(p_kept) k
        cross join lateral (
            select id
            from onward.runs
            where state = 'queued' and paused_at is null and stuck_builds is not null
                and cancel_at is null
                and stuck_builds = k and (crashes >= 3) = p_suspect
                and queue = p_queue and workflow = w
            order by priority desc, due_at, id
            limit p_looks
        ) c;
    end if;
    select coalesce(array_agg(r.id order by r.priority desc, r.due_at, r.id), '{}') into v_runs
    from onward.runs r
    where r.id = any (v_runs || v_kept);
    return v_runs;
end
$$;

-- Those of these runs whose lanes have room beside what is chosen, in their order.
create or replace function onward.claim_fitting(
    p_queue text,
    p_per_lane integer,
    p_runs uuid[],
    p_chosen uuid[],
    p_limit integer
) returns uuid[]
language plpgsql volatile as $$
declare
    v_run uuid;
    v_lane text;
    v_count bigint;
    v_chosen uuid[] := p_chosen;
begin
    foreach v_run in array p_runs loop
        exit when cardinality(v_chosen) >= p_limit;
        select r.lane into v_lane from onward.runs r where r.id = v_run;
        select count(*) into v_count
        from (
            select 1 from onward.runs r
            where r.state = 'running' and r.queue = p_queue and r.lane = v_lane
            limit p_per_lane
        ) c;
        select v_count + count(*) into v_count
        from onward.runs r
        where r.id = any (v_chosen) and r.lane = v_lane;
        if v_lane is null or v_count < p_per_lane then
            v_chosen := v_chosen || v_run;
        end if;
    end loop;
    return v_chosen;
end
$$;

-- Up to so many runs of one limited queue that a claim may take, in turn. Locked where they are to be
-- taken; whoever only looks locks nothing, or another claim would pass over what this one leaves.
create or replace function onward.claim_choose(
    p_now bigint,
    p_worker uuid,
    p_queue text,
    p_workflows text[],
    p_kept text[],
    p_suspect boolean,
    p_limit integer,
    p_take boolean
) returns table (runs uuid[], more boolean, look_at bigint, cut_at text)
language plpgsql volatile as $$
declare
    v_room record;
    v_lanes record;
    v_limit integer;
begin
    runs := '{}';
    more := false;
    select * into v_room from onward.claim_room(p_now, p_worker, p_queue);
    look_at := v_room.look_at;
    v_limit := least(p_limit, v_room.room);
    if v_limit <= 0 then
        return next;
        return;
    end if;
    if v_room.per_lane is null and p_take then
        runs := onward.claim_first(array[p_queue], p_workflows, p_kept, p_suspect, v_limit);
    elsif v_room.per_lane is null then
        more := onward.claim_any(array[p_queue], p_workflows, p_kept, p_suspect);
    else
        if not p_suspect then
            select * into v_lanes
            from onward.claim_lanes(
                p_queue, p_workflows, v_room.per_lane, v_room.last_lane, v_limit, 1000
            );
            runs := onward.claim_in_turn(
                p_queue, p_workflows, v_lanes.lanes, v_lanes.free, v_limit
            );
            cut_at := v_lanes.cut_at;
            if cut_at is not null then
                look_at := onward.now_ms(p_now) + 100;
            end if;
        end if;
        if cardinality(runs) < v_limit and (p_suspect or p_kept <> '{}') then
            runs := onward.claim_fitting(
                p_queue, v_room.per_lane,
                onward.claim_rare(p_queue, p_workflows, p_kept, p_suspect, 100), runs, v_limit
            );
        end if;
        if p_take then
            select coalesce(array_agg(l.id order by c.place), '{}') into runs
            from unnest(runs) with ordinality c (id, place) cross join lateral (
                select r.id from onward.runs r
                where r.id = c.id and r.state = 'queued'
                for update skip locked
            ) l;
        end if;
    end if;
    more := more or runs <> '{}';
    return next;
end
$$;

-- What a claim takes of limited queues beside what it found in others, locked: `chosen` in turn,
-- `taken` in the order of claims.
create or replace function onward.claim_limited(
    p_now bigint,
    p_worker uuid,
    p_queues text[],
    p_workflows text[],
    p_kept text[],
    p_suspect boolean,
    p_limit integer,
    p_others uuid[]
) returns table (chosen uuid[], taken uuid[])
language plpgsql volatile as $$
declare
    v_queue text;
    v_choice record;
begin
    chosen := '{}';
    taken := p_others;
    if p_limit > 0 then
        -- In the order of their names, so that two claims never wait for each other.
        foreach v_queue in array p_queues loop
            perform 1 from onward.queues q where q.name = v_queue for no key update;
            select * into v_choice
            from onward.claim_choose(
                p_now, p_worker, v_queue, p_workflows, p_kept, p_suspect, p_limit, true
            );
            chosen := chosen || v_choice.runs;
            if v_choice.cut_at is not null then
                update onward.queues q set last_lane = v_choice.cut_at where q.name = v_queue;
            end if;
        end loop;
    end if;
    if chosen <> '{}' then
        select array_agg(r.id order by r.priority desc, r.due_at, r.id) into taken
        from onward.runs r
        where r.id = any (chosen || p_others);
        taken := taken[1:p_limit];
    end if;
    return next;
end
$$;

-- Notes what was taken of limited queues: whose turn was last, and what counts against a rate.
create or replace function onward.claim_note(
    p_now bigint,
    p_queues text[],
    p_chosen uuid[],
    p_taken uuid[]
) returns void
language plpgsql volatile as $$
declare
    v_now bigint := onward.now_ms(p_now);
    v_queue record;
    v_count bigint;
    v_last text;
begin
    for v_queue in select * from onward.queues q where q.name = any (p_queues) loop
        select
            count(*),
            (array_agg(coalesce(r.lane, '') order by c.place desc))[1]
        into v_count, v_last
        from unnest(p_chosen) with ordinality c (id, place)
        join onward.runs r on r.id = c.id
        where r.queue = v_queue.name and r.id = any (p_taken);
        continue when v_count = 0;
        if v_queue.per_lane is not null then
            update onward.queues q set last_lane = v_last where q.name = v_queue.name;
        end if;
        if v_queue.rate_count is not null then
            delete from onward.grants g
            where g.queue = v_queue.name and g.at <= v_now - v_queue.rate_period_ms;
            insert into onward.grants (queue, at, count)
            values (v_queue.name, v_now, v_count)
            on conflict on constraint grants_pkey do update
            set count = grants.count + excluded.count;
        end if;
    end loop;
end
$$;

-- Whether a further claim could take something of limited queues, and when to look again.
create or replace function onward.claim_left(
    p_now bigint,
    p_worker uuid,
    p_queues text[],
    p_workflows text[],
    p_kept text[]
) returns table (more boolean, suspect boolean, look_at bigint)
language plpgsql volatile as $$
declare
    v_queue text;
    v_choice record;
begin
    more := false;
    suspect := false;
    foreach v_queue in array p_queues loop
        select * into v_choice
        from onward.claim_choose(p_now, p_worker, v_queue, p_workflows, p_kept, false, 1, false);
        more := more or v_choice.more;
        look_at := least(look_at, v_choice.look_at);
        select * into v_choice
        from onward.claim_choose(p_now, p_worker, v_queue, p_workflows, p_kept, true, 1, false);
        suspect := suspect or v_choice.more;
    end loop;
    return next;
end
$$;

-- Tells whoever was held back by a limit that one of these runs may have made room. Told in the
-- transaction that makes it, so that no wake-up is lost with its process.
create or replace function onward.tell_freed(p_runs uuid[]) returns void
language plpgsql volatile as $$
begin
    perform 1 from onward.queues q order by q.name limit 1;
    if not found then
        return;
    end if;
    perform 1
    from unnest(p_runs) f (id)
    join onward.runs r on r.id = f.id
    join onward.queues q on q.name = r.queue;
    if found then
        perform onward.tell_work();
    end if;
end
$$;
