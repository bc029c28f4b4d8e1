-- The record of a transactional step, as the last word of the user's transaction: it is sent
-- together with the commit, so nobody waits for a client while the fence is held.
create or replace function onward.transact(
    p_transaction text,
    p_run uuid,
    p_worker uuid,
    p_attempt integer,
    p_follows_seq bigint[],
    p_follows_step text[],
    p_seq bigint,
    p_step text,
    p_slot bigint,
    p_kind text,
    p_body text,
    p_try integer,
    p_began_at bigint,
    p_at bigint,
    p_foreign boolean
) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off as $$
begin
    if pg_current_xact_id()::text <> p_transaction then
        raise exception 'the transaction was ended by its body' using errcode = 'OW005';
    end if;
    perform onward.durable();
    perform onward.assert_live(p_worker);
    perform 1 from onward.runs r
    where r.id = p_run and r.state = 'running' and r.worker = p_worker and r.attempt = p_attempt;
    if not found then
        raise exception 'the run is held by another' using errcode = 'OW003';
    end if;
    perform 1
    from unnest(p_follows_seq, p_follows_step) w (seq, step)
    where not exists (
        select from onward.records f
        where f.run = p_run and f.step = w.step and f.slot in (0, w.seq) and f.seq = w.seq
    );
    if found then
        raise exception 'a record that this one follows is not there' using errcode = 'OW007';
    end if;
    insert into onward.records (
        run, seq, step, slot, kind, body, try_number, attempt, began_at, at, foreign_await
    )
    values (
        p_run, p_seq, p_step, p_slot, p_kind, p_body, p_try, p_attempt, p_began_at, p_at, p_foreign
    )
    on conflict do nothing;
    if not found then
        raise exception 'the step is recorded' using errcode = 'OW001';
    end if;
end
$$;
