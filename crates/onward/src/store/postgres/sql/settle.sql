-- A group commit: the records and the ends of many runs, each at most once, under the fence, in one
-- transaction that no client holds open.
--
-- Answers only what is out of the ordinary:
-- `refused` for a run of which nothing is written: it is not held under this lease, or has not the record that its
--     write follows, or is to be parked by a worker that joined another server;
-- `queued` for a run that was woken since its holder looked, and is queued instead of parked;
-- `freed` for one run, if runs that ended or were parked may have made room in a queue that is set up.
--
-- When a record's slot or another row is there already, or a run has
-- another behind it, the whole batch is undone and its writes are made one by one. To ask for each
-- row whether it is there (`on conflict`) costs a lock per row, and it hardly ever is.
--
-- Where every write passes, arrays are unnested side by side in a select's list. In its `from` each
-- would be copied into a store of its own first, which costs a record as much as finding its run.
create or replace function onward.settle(
    p_now bigint,
    p_workers uuid[],
    -- The writes.
    w_run uuid[],
    w_worker uuid[],
    w_attempt integer[],
    w_follows_seq bigint[],
    w_follows_step text[],
    w_end text[],
    w_output text[],
    w_failure text[],
    w_step text[],
    w_wake_at bigint[],
    w_waits_for text[],
    w_wakes_seen bigint[],
    -- Their records.
    r_run uuid[],
    r_attempt integer[],
    r_seq bigint[],
    r_step text[],
    r_slot bigint[],
    r_kind text[],
    r_body text[],
    r_try integer[],
    r_began_at bigint[],
    r_at bigint[],
    r_next_at bigint[],
    r_foreign boolean[]
) returns table (run uuid, answer text)
language plpgsql volatile set search_path = pg_catalog, pg_temp
-- A plan is made once, and looks each run of the batch up by its id, whatever the tables were like.
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
-- It must not keep the fence, nor hold up its lane, for a stranger's lock: then each is made alone.
set lock_timeout = '3s' as $$
declare
    v_now bigint;
    v_live uuid[];
    v_moved uuid[] := '{}';
    v_held uuid[];
    v_ends bigint;
    v_parks bigint;
    v_told bigint;
    v_done bigint;
    v_parked bigint;
    v_woken uuid[];
begin
    perform onward.durable();
    perform onward.fence(p_workers);
    v_now := onward.now_ms(p_now);
    -- Asked once and not for each write: under the fence nobody marks them lost.
    v_live := array(
        select k.id from onward.workers k where k.id = any (p_workers) and k.lost_at is null
    );
    if 'parked' = any (w_end) then
        v_moved := onward.moved(p_workers);
    end if;
    -- Under the fence nobody but their holder changes these runs' states from here on. The holder may:
    -- an earlier try of this very write, whose answer was lost, may be committed while this one waits
    -- for the row, and the run be another's by then. So what changes a state asks for the lease again.
    select
        coalesce(array_agg(w.run), '{}'),
        count(*) filter (where w.ending in ('completed', 'failed', 'cancelled')),
        count(*) filter (where w.ending in ('parked', 'released')),
        count(*) filter (
            where w.ending in ('completed', 'failed', 'cancelled') and r.parent is not null
        )
    into v_held, v_ends, v_parks, v_told
    from (
        select
            unnest(w_run) as run, unnest(w_worker) as worker, unnest(w_attempt) as attempt,
            unnest(w_end) as ending, unnest(w_follows_seq) as follows_seq,
            unnest(w_follows_step) as follows_step
    ) w
    cross join lateral (
        -- By its id alone: a plan that walks what is running would cost each step all of it.
        select r.state, r.worker, r.attempt, r.parent
        from onward.runs r where r.id = w.run limit 1
    ) r
    where w.worker = any (v_live)
        and r.state = 'running' and r.worker = w.worker and r.attempt = w.attempt
        and (w.ending is distinct from 'parked' or w.worker <> all (v_moved))
        and (
            w.follows_seq is null
            or exists (
                select from onward.records f
                where f.run = w.run and f.step = w.follows_step
                    and f.slot in (0, w.follows_seq) and f.seq = w.follows_seq
            )
        );
    if cardinality(v_held) < cardinality(w_run) then
        return query
        select w, 'refused'::text from unnest(w_run) w
        where not exists (select from unnest(v_held) h where h = w);
        -- What is left is written, without what belongs to others.
        select
            array_agg(w.run), array_agg(w.worker), array_agg(w.attempt), array_agg(w.ending),
            array_agg(w.output), array_agg(w.failure), array_agg(w.step), array_agg(w.wake_at),
            array_agg(w.waits_for), array_agg(w.wakes_seen)
        into
            w_run, w_worker, w_attempt, w_end, w_output, w_failure, w_step, w_wake_at, w_waits_for,
            w_wakes_seen
        from unnest(
            w_run, w_worker, w_attempt, w_end, w_output, w_failure, w_step, w_wake_at, w_waits_for,
            w_wakes_seen
        ) w (
            run, worker, attempt, ending, output, failure, step, wake_at, waits_for, wakes_seen
        )
        where w.run = any (v_held);
        select
            coalesce(array_agg(r.run), '{}'), array_agg(r.seq), array_agg(r.step),
            array_agg(r.slot), array_agg(r.kind), array_agg(r.body), array_agg(r.try),
            array_agg(r.attempt), array_agg(r.began_at), array_agg(r.at), array_agg(r.next_at),
            array_agg(r.foreign_await)
        into
            r_run, r_seq, r_step, r_slot, r_kind, r_body, r_try, r_attempt, r_began_at, r_at,
            r_next_at, r_foreign
        from unnest(
            r_run, r_seq, r_step, r_slot, r_kind, r_body, r_try, r_attempt, r_began_at, r_at,
            r_next_at, r_foreign
        ) r (
            run, seq, step, slot, kind, body, try, attempt, began_at, at, next_at, foreign_await
        )
        where r.run = any (v_held);
    end if;
    if v_told > 0 or (v_ends > 0 and v_parks > 0) then
        -- All that is written here in one order, so that two batches never wait for each other. Ends alone,
        -- and parks alone, are written in the order in which they are sent, which is that one.
        perform 1
        from onward.runs r
        where r.id = any (w_run || array(
            select c.parent from onward.runs c where c.id = any (w_run) and c.parent is not null
        ))
        order by r.id
        for no key update;
    end if;
    if cardinality(r_run) > 0 then
        insert into onward.records (
            run, seq, step, slot, kind, body, try_number, attempt, began_at, at, next_at,
            foreign_await
        )
        select
            unnest(r_run), unnest(r_seq), unnest(r_step), unnest(r_slot), unnest(r_kind),
            unnest(r_body), unnest(r_try), unnest(r_attempt), unnest(r_began_at), unnest(r_at),
            unnest(r_next_at), unnest(r_foreign);
    end if;
    if v_ends > 0 then
        update onward.runs r
        set
            state = w.ending,
            finished_at = v_now,
            due_at = null,
            paused_at = null,
            paused_by = null,
            waits_for = null,
            stuck = null,
            worker = null,
            ticket = null,
            crashes = 0,
            retried_at = null,
            failed_step = w.step,
            continued_as = null,
            cascades = case
                when w.ending = 'cancelled' then true
                when w.ending = 'failed' and r.cancel_at is not null then true
                else r.cascades
            end
        from (
            select
                unnest(w_run) as run, unnest(w_worker) as worker, unnest(w_attempt) as attempt,
                unnest(w_end) as ending, unnest(w_step) as step
        ) w
        where r.id = w.run and r.worker = w.worker and r.attempt = w.attempt
            and r.successor is null
            and w.ending in ('completed', 'failed', 'cancelled');
        get diagnostics v_done = row_count;
        if v_done <> v_ends then
            raise exception 'a run has another behind it, or is another''s by now'
                using errcode = 'OW001';
        end if;
        insert into onward.outputs (run, output, failure)
        select w.run, w.output, w.failure
        from (
            select
                unnest(w_run) as run, unnest(w_end) as ending, unnest(w_output) as output,
                unnest(w_failure) as failure
        ) w
        where w.ending in ('completed', 'failed');
    end if;
    if v_ends + v_parks > 0 then
        -- Told after the commit, by whoever made it: a notification inside would have all commits of the
        -- server wait for each other.
        perform 1 from onward.queues q order by q.name limit 1;
        if found then
            return query select f, 'freed'::text from onward.freed(w_run) f;
        end if;
    end if;
    if v_told > 0 then
        return query
        select t.parent, case when t.woken then 'woken' else 'told' end
        from onward.tell_parents(v_now, w_run) t;
    end if;
    if v_parks > 0 then
        with parked as (
            update onward.runs r
            set
                state = case when w.ending = 'parked' and r.wakes = w.wakes_seen
                    then 'waiting' else 'queued' end,
                due_at = case when w.ending = 'parked' and r.wakes = w.wakes_seen
                    then w.wake_at else v_now end,
                waits_for = case when w.ending = 'parked' and r.wakes = w.wakes_seen
                    then w.waits_for end,
                stuck = null,
                wakes = r.wakes + case when w.ending = 'released' then 1 else 0 end,
                worker = null,
                ticket = null,
                crashes = 0,
                retried_at = null
            from unnest(
                w_run, w_worker, w_attempt, w_end, w_wake_at, w_waits_for, w_wakes_seen
            ) w (run, worker, attempt, ending, wake_at, waits_for, wakes_seen)
            where r.id = w.run and r.worker = w.worker and r.attempt = w.attempt
                and w.ending in ('parked', 'released')
            returning r.id, r.attempt, r.build,
                w.ending = 'parked' and r.state = 'queued' as was_woken
        ), traced as (
            insert into onward.attempts (run, attempt, build, settled)
            select p.id, p.attempt, coalesce(p.build, ''),
                case when p.was_woken then 'queued' else 'as_said' end
            from parked p
        )
        select coalesce(array_agg(p.id) filter (where p.was_woken), '{}'), count(*)
        into v_woken, v_parked
        from parked p;
        if v_parked <> v_parks then
            raise exception 'a run is another''s by now' using errcode = 'OW001';
        end if;
        return query select q, 'queued'::text from unnest(v_woken) q;
    end if;
end
$$;
