-- Ends a worker: what it holds is queued, up to so many runs at a time, without counting a crash; with the last
-- of them it is marked lost. The fence is taken alone, so nothing it was writing comes after.
create or replace function onward.leave(
    p_now bigint,
    p_worker uuid,
    p_limit integer
) returns table (released uuid[], more boolean)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
-- Below the time after which the caller gives up: see `claim`.
set lock_timeout = '6s' as $$
declare
    v_now bigint;
begin
    perform pg_advisory_xact_lock(onward.fence_key(p_worker));
    v_now := onward.now_ms(p_now);
    released := array(
        select r.id
        from onward.runs r
        where r.state = 'running' and r.worker = p_worker
        limit p_limit
        for update
    );
    more := cardinality(released) = p_limit;
    insert into onward.attempts (run, attempt, build, settled)
    select r.id, r.attempt, coalesce(r.build, ''), null
    from onward.runs r
    where r.id = any (released)
    on conflict (run, attempt) do update
    set build = excluded.build, settled = excluded.settled;
    update onward.runs r
    set
        state = 'queued',
        worker = null,
        ticket = null,
        due_at = v_now,
        waits_for = null,
        wakes = r.wakes + 1
    where r.id = any (released);
    if not more then
        update onward.workers w set lost_at = v_now where w.id = p_worker and w.lost_at is null;
    end if;
    if released <> '{}' then
        perform onward.tell_work();
    end if;
    return next;
end
$$;
