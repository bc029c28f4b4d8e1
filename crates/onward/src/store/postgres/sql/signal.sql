-- Keeps a signal for a run, and wakes the run if it waits for signals. Answers what became of it:
-- `new`, `queued` (new, and the run is woken), `existing`, `key_conflict`, `finished`, `full` or
-- `not_found`. Refuses by its answer, so that a transaction of the user's own goes on.
create or replace function onward.signal_one(
    p_now bigint,
    p_run uuid,
    p_name text,
    p_step text,
    p_key text,
    p_fingerprint bytea,
    p_body text,
    p_bounded boolean
) returns table (how text, no bigint, at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off as $$
declare
    v_run record;
    v_kept boolean;
    v_bytes bigint := octet_length(p_name) + octet_length(p_key) + octet_length(p_body);
begin
    perform onward.durable();
    select r.state, r.signals, r.signal_bytes, r.waits_for into v_run
    from onward.runs r
    where r.id = p_run
    for no key update;
    if not found then
        how := 'not_found';
        return next;
        return;
    end if;
    select case when s.fingerprint = p_fingerprint then 'existing' else 'key_conflict' end,
        s.no, s.at
    into how, no, at
    from onward.signals s
    where s.run = p_run and s.name = p_name and s.key = p_key;
    if found then
        return next;
        return;
    end if;
    no := v_run.signals + 1;
    at := onward.now_ms(p_now);
    -- How a child ended is no sender's: a parent that failed may be retried, and waits for it again then.
    v_kept := v_run.state = 'failed' and not starts_with(p_step, '$signal/');
    how := case
        when v_run.state in ('completed', 'failed', 'cancelled') and not v_kept then 'finished'
        -- Ends of children are always kept: there are no more of them than the run has started.
        when p_bounded and (no > 10000 or v_run.signal_bytes + v_bytes > 16777216) then 'full'
        -- By its text: what is stuck may tell of anything, and not all of that is JSON to the database.
        when v_run.state = 'waiting'
            and v_run.waits_for ~ '^\s*\{\s*"for"\s*:\s*"(signal|child)"'
            then 'queued'
        else 'new' end;
    if how in ('new', 'queued') then
        insert into onward.signals (run, no, name, step, key, fingerprint, body, at)
        values (p_run, no, p_name, p_step, p_key, p_fingerprint, p_body, at);
        update onward.runs r
        set
            signals = signal_one.no,
            signal_bytes = r.signal_bytes + v_bytes,
            wakes = r.wakes + case when v_kept then 0 else 1 end,
            state = case when how = 'queued' then 'queued' else r.state end,
            due_at = case when how = 'queued' then signal_one.at else r.due_at end,
            waits_for = case when how = 'queued' then null else r.waits_for end
        where r.id = p_run;
    end if;
    return next;
end
$$;

-- Tells the parents of these runs that they have ended, and which of them are woken by it. A parent
-- that has completed or was cancelled, or is gone, need not know.
create or replace function onward.tell_parents(p_now bigint, p_runs uuid[])
returns table (parent uuid, woken boolean)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off as $$
declare
    v_child record;
    v_how text;
begin
    for v_child in
        select r.id, r.parent, r.parent_step, case r.state
            when 'completed' then
                '{"state":"completed","output":' || coalesce(o.output, 'null') || '}'
            when 'failed' then '{"state":"failed","failure":' || o.failure || '}'
            else '{"state":"cancelled"}' end as body
        from unnest(p_runs) u
        join onward.runs r on r.id = u
        left join onward.outputs o on o.run = r.id
        where r.parent is not null and r.finished_at is not null and r.continued_as is null
        order by r.parent, r.id
    loop
        select s.how into v_how
        from onward.signal_one(
            p_now, v_child.parent, v_child.parent_step, v_child.parent_step, v_child.id::text,
            sha256(convert_to(v_child.id::text, 'utf8')), v_child.body, false
        ) s;
        if v_how in ('new', 'queued') then
            parent := v_child.parent;
            woken := v_how = 'queued';
            return next;
        end if;
    end loop;
end
$$;

-- Keeps a signal in a transaction of its own, which waits for a stranger's lock no longer than its
-- caller does. In a transaction of the user's own their settings hold.
create or replace function onward.signal_alone(
    p_now bigint,
    p_run uuid,
    p_name text,
    p_step text,
    p_key text,
    p_fingerprint bytea,
    p_body text
) returns table (how text, no bigint, at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set lock_timeout = '6s' as $$
begin
    return query
    select s.how, s.no, s.at
    from onward.signal_one(
        p_now, p_run, p_name, p_step, p_key, p_fingerprint, p_body, true
    ) s;
end
$$;

-- Keeps a signal inside a transaction of the user's own, and has the others told at its commit.
create or replace function onward.signal_inside(
    p_now bigint,
    p_run uuid,
    p_name text,
    p_step text,
    p_key text,
    p_fingerprint bytea,
    p_body text
) returns table (how text, no bigint, at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    select s.how, s.no, s.at into how, no, at
    from onward.signal_one(
        p_now, p_run, p_name, p_step, p_key, p_fingerprint, p_body, true
    ) s;
    if how in ('new', 'queued') then
        perform pg_notify(
            'onward_' || split_part('onward.', '.', 1),
            'sql work ' || replace(p_run::text, '-', '')
        );
    end if;
    return next;
end
$$;

-- Sends a signal from SQL: `select onward.signal(run, 'paid', '{"invoice": 12}', key => 'e-1')`.
-- With a key that was sent before it does nothing, if the value is the same. Gives the signal's
-- number among the run's.
create or replace function onward.signal(
    run uuid,
    name text,
    value jsonb default 'null',
    key text default null
) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_sent record;
begin
    perform onward.check_name('signal', name, 128);
    if key is not null then
        perform onward.check_name('key', key, 512);
    end if;
    if value is null or octet_length(value::text) > 2097152 then
        raise exception 'payload_too_large: the value is null or larger than 2 MiB of JSON'
        using errcode = 'OW006', hint = 'a signal without a value carries the JSON null';
    end if;
    perform onward.held(value);
    if name !~ '^[A-Za-z0-9_.:/ -]{1,128}$' or name like ' %' or name like '% ' then
        raise exception 'invalid_name: from SQL a signal is named with letters, digits and _.:/-'
        using errcode = 'OW006';
    end if;
    select * into v_sent
    from onward.signal_inside(
        null,
        run,
        name,
        '$signal/' || name,
        coalesce('=' || key, gen_random_uuid()::text),
        sha256(convert_to(onward.canonical(value), 'utf8')),
        value::text
    );
    if v_sent.how not in ('new', 'queued', 'existing') then
        raise exception '%: the signal % is not sent to run %', v_sent.how, name, run
        using errcode = 'OW006',
            hint = 'finished: it has ended; key_conflict: the key came with another value';
    end if;
    return v_sent.no;
end
$$;
