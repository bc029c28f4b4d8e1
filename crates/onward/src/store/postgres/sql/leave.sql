-- Ends a worker: it is marked lost, and whatever it holds is queued at once, without counting a
-- crash. The fence is taken alone, so nothing it was writing comes after.
create or replace function onward.leave(p_now bigint, p_worker uuid) returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off
-- Below the time after which the caller gives up: see `claim`.
set lock_timeout = '6s' as $$
declare
    v_now bigint;
    v_released uuid[];
begin
    perform pg_advisory_xact_lock(onward.fence_key(p_worker));
    v_now := onward.now_ms(p_now);
    update onward.workers set lost_at = v_now where id = p_worker and lost_at is null;
    insert into onward.attempts (run, attempt, build, settled)
    select r.id, r.attempt, coalesce(r.build, ''), null
    from onward.runs r
    where r.state = 'running' and r.worker = p_worker
    on conflict (run, attempt) do update
    set build = excluded.build, settled = excluded.settled;
    with released as (
        update onward.runs
        set
            state = 'queued',
            worker = null,
            ticket = null,
            due_at = v_now,
            waits_for = null,
            wakes = wakes + 1
        where state = 'running' and worker = p_worker
        returning id
    )
    select coalesce(array_agg(id), '{}') into v_released from released;
    if v_released <> '{}' then
        perform onward.tell_work();
    end if;
    return v_released;
end
$$;
