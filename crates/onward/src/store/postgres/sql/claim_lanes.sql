-- Lanes of a queue that has a limit for each: which of them have room, and what they give in turn.

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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_after text;
    v_upto text;
    v_lane record;
    v_looked integer := 0;
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
            perform 1 from onward.claim_laneless(p_queue, p_workflows, 1);
            if found then
                lanes := lanes || ''::text;
                free := free || p_limit;
            end if;
        end if;
        exit when cardinality(lanes) >= p_limit or v_looked >= p_looks;
        continue when v_upto = '';
        -- Read as it is needed: it ends with the last lane that is.
        for v_lane in
            select w.lane, c.free
            from onward.claim_walk(p_queue, p_workflows, v_after, v_upto, p_looks - v_looked) w
            cross join lateral (
                select (p_per_lane - count(*))::integer as free
                from (
                    select 1 from onward.runs r
                    where r.state = 'running' and r.queue > '' and r.queue = p_queue and r.lane = w.lane
                    limit p_per_lane
                ) r
            ) c
        loop
            v_looked := v_looked + 1;
            if v_lane.free > 0 then
                lanes := lanes || v_lane.lane;
                free := free || v_lane.free;
            end if;
            exit when cardinality(lanes) >= p_limit;
        end loop;
        exit when cardinality(lanes) >= p_limit;
    end loop;
    if v_looked >= p_looks and lanes = '{}' then
        cut_at := v_lane.lane;
    end if;
    return next;
end
$$;

-- Ordinary queued runs without a lane, in the order of claims.
create or replace function onward.claim_laneless(
    p_queue text,
    p_workflows text[],
    p_limit integer
) returns table (id uuid, priority integer, due_at bigint)
language sql stable as $$
    select n.id, n.priority, n.due_at
    from unnest(p_workflows) f cross join lateral (
        select r.id, r.priority, r.due_at
        from onward.runs r
        where r.state = 'queued' and r.lane is null and r.crashes < 3 and r.paused_at is null
            and (r.stuck_builds is null or r.cancel_at is not null)
            and r.queue = p_queue and r.workflow = f
        order by r.priority desc, r.due_at, r.id
        limit p_limit
    ) n
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
                    from onward.claim_laneless(p_queue, p_workflows, v_share) s
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
            where r.state = 'running' and r.queue > '' and r.queue = p_queue and r.lane = v_lane
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
