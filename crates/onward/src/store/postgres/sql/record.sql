-- A lone record: what `settle` does for many, at a third of the cost. Says whether the run is held
-- under this lease and has the record that this one follows; if not, nothing is written.
create or replace function onward.record(
    p_fence bigint,
    p_worker uuid,
    p_follows_seq bigint,
    p_follows_step text,
    p_run uuid,
    p_attempt integer,
    p_seq bigint,
    p_step text,
    p_slot bigint,
    p_kind text,
    p_body text,
    p_try integer,
    p_began_at bigint,
    p_at bigint,
    p_next_at bigint,
    p_foreign boolean
) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
-- It must not keep the fence, nor hold up its lane, for a stranger's lock: then each is made alone.
set lock_timeout = '3s' as $$
begin
    perform onward.durable();
    if current_setting('transaction_isolation') <> 'read committed' then
        -- It says what to do.
        perform onward.fence(array[p_worker]);
    end if;
    perform pg_advisory_xact_lock_shared(p_fence);
    insert into onward.records (
        run, seq, step, slot, kind, body, try_number, attempt, began_at, at, next_at,
        foreign_await
    )
    select
        p_run, p_seq, p_step, p_slot, p_kind, p_body, p_try, p_attempt, p_began_at, p_at,
        p_next_at, p_foreign
    from onward.runs r, onward.workers k
    -- Only a running run has a worker.
    where r.id = p_run and r.worker = p_worker and r.attempt = p_attempt
        and k.id = p_worker and k.lost_at is null
        and (
            p_follows_seq is null
            or exists (
                select from onward.records f
                where f.run = p_run and f.step = p_follows_step
                    and f.slot in (0, p_follows_seq) and f.seq = p_follows_seq
            )
        );
    return found;
end
$$;
