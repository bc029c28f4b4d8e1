-- Claiming from queues that have limits or are paused. A claim locks the row of each such queue, so
-- that claims from it come one after the other, and counts what is running in statements after that:
-- they see what was committed before. A queue whose row another holds is left out and looked at again in
-- a moment: whoever holds it must not hold up the other queues. Whoever settles or is swept only makes
-- room, and locks nothing.

-- How many runs the limits of the whole queue leave room for, and when the rate leaves more.
create or replace function onward.claim_room(p_now bigint, p_worker uuid, p_queue text)
returns table (room bigint, look_at bigint, per_lane integer, last_lane text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
    -- Limits that are none may be any: a queue whose row is damaged gives nothing, and holds up no other.
    if v_queue.paused_at is not null
        or least(
            v_queue.concurrency, v_queue.per_worker, v_queue.per_lane, v_queue.rate_count,
            v_queue.rate_period_ms
        ) < 0 then
        room := 0;
        return next;
        return;
    end if;
    if v_queue.concurrency is not null then
        select count(*) into v_count
        from (
            select 1 from onward.runs
            where state = 'running' and queue > '' and queue = p_queue
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
        where g.queue = p_queue and g.at > v_now - v_queue.rate_period_ms
            -- What is further ahead was granted before the clock was set back.
            and g.at <= v_now + v_queue.rate_period_ms;
        if v_count >= v_queue.rate_count then
            look_at := v_first + v_queue.rate_period_ms;
        end if;
        room := least(room, v_queue.rate_count - v_count);
    end if;
    return next;
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
        runs := array(
            select c.id
            from onward.claim_first(
                array[p_queue], p_workflows, p_kept, p_suspect, v_limit, '{}', '{}', '{}', '{}',
                '{}', '{}'
            ) c
            order by c.priority desc, c.due_at, c.id
            limit v_limit
        );
    elsif v_room.per_lane is null then
        more := onward.claim_any(
            array[p_queue], p_workflows, p_kept, p_suspect, '{}', '{}', '{}', '{}', '{}', '{}'
        );
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
                where r.id = c.id and r.state = 'queued' and r.paused_at is null
                for update skip locked
            ) l;
        end if;
    end if;
    more := more or runs <> '{}';
    return next;
end
$$;

-- Runs that were chosen of limited queues, each queue's in turn, and others, in one order. The first in turn
-- of a queue has the earliest of the places that its chosen runs have among all: by its own place, the only run
-- of a light lane would be the last of them all, and cut off.
create or replace function onward.claim_in_places(p_chosen uuid[], p_others uuid[]) returns uuid[]
language sql volatile set search_path = pg_catalog, pg_temp as $$
    with all_runs as (
        select r.id, r.queue, r.priority, r.due_at, c.turn
        from unnest(p_chosen) with ordinality c (id, turn)
        join onward.runs r on r.id = c.id
        union all
        select r.id, null, r.priority, r.due_at, row_number() over (order by r.priority desc, r.due_at, r.id)
        from onward.runs r
        where r.id = any (p_others)
    ),
    turns as (
        select a.id, a.queue, row_number() over (partition by a.queue order by a.turn) as number
        from all_runs a
    ),
    places as (
        select a.queue, a.priority, a.due_at, a.id,
            row_number() over (
                partition by a.queue order by a.priority desc, a.due_at, a.id
            ) as number
        from all_runs a
    )
    select array_agg(t.id order by p.priority desc, p.due_at, p.id)
    from turns t
    join places p on p.queue is not distinct from t.queue and p.number = t.number
$$;

-- What a claim takes of limited queues beside what it found in others, locked: `chosen` in turn,
-- `taken` in the order of `claim_in_places`. `dry` are the queues that have nothing more for it now,
-- `busy` those that another holds.
create or replace function onward.claim_limited(
    p_now bigint,
    p_worker uuid,
    p_queues text[],
    p_workflows text[],
    p_kept text[],
    p_suspect boolean,
    p_limit integer,
    p_others uuid[]
) returns table (chosen uuid[], taken uuid[], dry text[], busy text[])
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_queue text;
    v_choice record;
begin
    chosen := '{}';
    taken := p_others;
    dry := '{}';
    busy := '{}';
    if p_limit > 0 then
        foreach v_queue in array p_queues loop
            perform 1 from onward.queues q where q.name = v_queue for no key update skip locked;
            if not found and exists (select from onward.queues q where q.name = v_queue) then
                busy := busy || v_queue;
                continue;
            end if;
            select * into v_choice
            from onward.claim_choose(
                p_now, p_worker, v_queue, p_workflows, p_kept, p_suspect, p_limit, true
            );
            chosen := chosen || v_choice.runs;
            if not p_suspect and cardinality(v_choice.runs) < p_limit then
                dry := dry || v_queue;
            end if;
            -- Others are left to look at: not dry, and looked at again in a moment.
            if v_choice.cut_at is not null then
                update onward.queues q set last_lane = v_choice.cut_at where q.name = v_queue;
                dry := array_remove(dry, v_queue);
            end if;
        end loop;
    end if;
    if chosen <> '{}' then
        taken := onward.claim_in_places(chosen, p_others);
        -- What is left of a queue for want of places is there for the next claim.
        if cardinality(taken) > p_limit then
            taken := taken[1:p_limit];
            dry := '{}';
        end if;
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
            where g.queue = v_queue.name
                and (
                    g.at <= v_now - v_queue.rate_period_ms
                    or g.at > v_now + v_queue.rate_period_ms
                );
            insert into onward.grants (queue, at, count)
            values (v_queue.name, v_now, v_count)
            on conflict (queue, at) do update
            set count = grants.count + excluded.count;
        end if;
    end loop;
end
$$;

-- Whether a further claim could take something of limited queues, and when to look again. Queues that
-- are known to be dry are not looked through again, and those that another holds not before a moment.
create or replace function onward.claim_left(
    p_now bigint,
    p_worker uuid,
    p_queues text[],
    p_workflows text[],
    p_kept text[],
    p_dry text[],
    p_busy text[]
) returns table (more boolean, suspect boolean, look_at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_queue text;
    v_choice record;
    v_room record;
begin
    more := false;
    suspect := false;
    foreach v_queue in array p_queues loop
        if v_queue = any (p_busy) then
            look_at := least(look_at, onward.now_ms(p_now) + 100);
        elsif v_queue = any (p_dry) then
            select * into v_room from onward.claim_room(p_now, p_worker, v_queue);
            look_at := least(look_at, v_room.look_at);
        else
            select * into v_choice
            from onward.claim_choose(
                p_now, p_worker, v_queue, p_workflows, p_kept, false, 1, false
            );
            more := more or v_choice.more;
            look_at := least(look_at, v_choice.look_at);
        end if;
        select * into v_choice
        from onward.claim_choose(p_now, p_worker, v_queue, p_workflows, p_kept, true, 1, false);
        suspect := suspect or v_choice.more;
    end loop;
    return next;
end
$$;

-- Returns one of these runs that is in a queue that is set up, or nothing. If there is one, runs that a limit held
-- back may have room.
create or replace function onward.freed(p_runs uuid[]) returns setof uuid
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select r.id
    from unnest(p_runs) f (id)
    join onward.runs r on r.id = f.id
    join onward.queues q on q.name = r.queue
    limit 1
$$;
