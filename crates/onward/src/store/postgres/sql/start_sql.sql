-- Starting a run from SQL, and inside a transaction of the user's own.

-- A whole or broken number as the library writes it into a fingerprint: whole ones that a float
-- holds exactly without a fraction, others as short as a float can be read back. What a float does not
-- hold has all of its digits, if these are more than floats are written with.
create or replace function onward.canonical_number(n numeric) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp
-- With which a float is written as short as it can be read back, whatever the session has.
set extra_float_digits = 1 as $$
declare
    v_text text;
    v_digits text;
    v_point integer;
    v_sign text := '';
begin
    if n = trunc(n) and abs(n) < 9007199254740992 then
        return trunc(n)::text;
    end if;
    if scale(n) = 0 and n >= -9223372036854775808 and n <= 18446744073709551615 then
        return n::text;
    end if;
    v_text := n::float8::text;
    v_digits := trim(both '0' from replace(abs(n)::text, '.', ''));
    if v_text::numeric <> n and length(v_digits) > 17 then
        if n = trunc(n) then
            return trunc(n)::text;
        end if;
        return case when n < 0 then '-' else '' end || v_digits || 'e-'
            || length(rtrim(split_part(n::text, '.', 2), '0'));
    end if;
    if left(v_text, 1) = '-' then
        v_sign := '-';
        v_text := substr(v_text, 2);
    end if;
    -- The digits without zeros at their ends, and where the point stands in them.
    v_digits := replace(split_part(v_text, 'e', 1), '.', '');
    v_point := length(split_part(split_part(v_text, 'e', 1), '.', 1))
        + coalesce(nullif(split_part(v_text, 'e', 2), '')::integer, 0);
    v_point := v_point - (length(v_digits) - length(ltrim(v_digits, '0')));
    v_digits := rtrim(ltrim(v_digits, '0'), '0');
    if v_point > 0 and v_point <= 16 then
        if length(v_digits) <= v_point then
            return v_sign || rpad(v_digits, v_point, '0') || '.0';
        end if;
        return v_sign || left(v_digits, v_point) || '.' || substr(v_digits, v_point + 1);
    end if;
    if v_point > -5 and v_point <= 0 then
        return v_sign || '0.' || repeat('0', -v_point) || v_digits;
    end if;
    v_text := case when v_point > 0 then 'e+' else 'e' end || (v_point - 1);
    if length(v_digits) = 1 then
        return v_sign || v_digits || v_text;
    end if;
    return v_sign || left(v_digits, 1) || '.' || substr(v_digits, 2) || v_text;
end
$$;

-- The form by which inputs are compared: names in the order of their bytes, nothing that is null,
-- one form for each number.
create or replace function onward.canonical(value jsonb) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    v_text text;
begin
    case jsonb_typeof(value)
        when 'object' then
            select coalesce(string_agg(
                to_json(f.key)::text || ':' || onward.canonical(f.value) || ',', ''
                order by f.key collate "C"
            ), '') into v_text
            from jsonb_each(value) f
            where f.value <> 'null'::jsonb;
            return '{' || v_text || '}';
        when 'array' then
            select coalesce(string_agg(onward.canonical(i.value) || ',', '' order by i.place), '')
            into v_text
            from jsonb_array_elements(value) with ordinality i (value, place);
            return '[' || v_text || ']';
        when 'number' then
            return onward.canonical_number(value::numeric);
        else
            return value::text;
    end case;
end
$$;

-- An id that sorts after those made before it (version 7).
create or replace function onward.new_id(p_now bigint) returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_random text := replace(gen_random_uuid()::text, '-', '');
begin
    return (
        lpad(to_hex(p_now), 12, '0') || '7' || substr(v_random, 1, 3)
        || substr('89ab', 1 + floor(random() * 4)::integer, 1) || substr(v_random, 18, 15)
    )::uuid;
end
$$;

-- Starts a run, or finds the one that has its key. Refuses by its answer, not by an error, so that
-- a transaction of the user's own goes on: `new`, `existing`, `key_conflict` or `key_taken`.
create or replace function onward.start_one(
    p_now bigint,
    p_id uuid,
    p_workflow text,
    p_input text,
    p_fingerprint bytea,
    p_key text,
    p_ttl bigint,
    p_reject boolean,
    p_queue text,
    p_priority integer,
    p_after bigint,
    p_at bigint,
    p_timeout bigint,
    p_tags text,
    p_caller text,
    p_lane text
) returns table (run uuid, how text, at bigint)
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off as $$
declare
    v_now bigint := onward.now_ms(p_now);
    v_key record;
    v_count bigint;
    v_same boolean;
    v_looks integer := 0;
begin
    -- A transaction that is made again after its answer was lost finds what it started.
    select r.id, 'new', r.created_at into run, how, at from onward.runs r where r.id = p_id;
    if found then
        return next;
        return;
    end if;
    loop
        v_looks := v_looks + 1;
        if v_looks > 8 then
            raise exception 'the key is taken and freed again and again' using errcode = '40001';
        end if;
        select s.id, 'new', s.at into run, how, at
        from onward.start_runs(
            v_now, '{}', array[p_id], array[p_workflow], array[p_queue], array[p_priority],
            array[p_input], array[p_tags], array[p_after], array[p_at], array[p_timeout],
            array[p_key], array[p_fingerprint], array[p_ttl], array[null::uuid],
            array[null::text],
            array(select p_id from json_each_text(coalesce(p_tags, '{}')::json)),
            array(select t.key from json_each_text(coalesce(p_tags, '{}')::json) t),
            array(select t.value from json_each_text(coalesce(p_tags, '{}')::json) t),
            '{}', '{}', '{}', '{}', '{}', '{}', array[p_lane]
        ) s;
        if found then
            perform onward.tell_work();
            return next;
            return;
        end if;
        select k.run, k.fingerprint, k.expires_at into v_key
        from onward.keys k
        where k.workflow = p_workflow and k.key = p_key
        for update;
        -- Pruned in between: look again.
        continue when not found;
        if v_key.expires_at <= v_now
            or not exists (select from onward.runs r where r.id = v_key.run) then
            delete from onward.keys k where k.workflow = p_workflow and k.key = p_key;
            continue;
        end if;
        exit;
    end loop;
    v_same := v_key.fingerprint = p_fingerprint;
    with added as (
        insert into onward.duplicates (run, start, at, caller, same_input)
        values (v_key.run, p_id, v_now, p_caller, v_same)
        on conflict do nothing
        returning duplicates.run
    )
    update onward.runs r
    set duplicates = r.duplicates + 1
    from added
    where r.id = added.run
    returning r.duplicates into v_count;
    if v_count > 100 then
        delete from onward.duplicates d
        where d.no = (select min(o.no) from onward.duplicates o where o.run = v_key.run);
    end if;
    run := v_key.run;
    how := case when p_reject then 'key_taken' when v_same then 'existing' else 'key_conflict' end;
    at := (select r.created_at from onward.runs r where r.id = v_key.run);
    return next;
end
$$;

-- Starts a run from SQL: `select onward.start('ship', '{"order": 7}', key => 'order-7')`. Gives the
-- run's id; with a key that is in use, that run's. Another input with the same key is an error.
create or replace function onward.start(
    workflow text,
    input jsonb default 'null',
    key text default null,
    queue text default 'default',
    priority integer default 0,
    start_at timestamptz default null,
    timeout interval default null,
    key_ttl interval default null,
    tags jsonb default '{}',
    lane text default null
) returns uuid
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_started record;
    v_held jsonb := onward.held(input);
    v_fingerprint bytea;
begin
    perform onward.check_name('workflow', workflow, 128);
    perform onward.check_name('queue', queue, 128);
    if key is not null then
        perform onward.check_name('key', key, 512);
    end if;
    if lane is not null then
        perform onward.check_name('lane', lane, 128);
    end if;
    if jsonb_typeof(tags) <> 'object' or exists (
        select from jsonb_each(tags) t
        where jsonb_typeof(t.value) <> 'string' or t.key = '' or octet_length(t.key) > 128
            or octet_length(t.value #>> '{}') > 512
    ) or (select count(*) from jsonb_object_keys(tags)) > 32 then
        raise exception 'invalid_option: tags are at most 32 texts by name'
        using errcode = 'OW006', hint = 'write them as {"name": "value"}';
    end if;
    if input is null or priority is null or extract(epoch from timeout) < 0
        or extract(epoch from key_ttl) < 0 then
        raise exception 'invalid_option: the input or the priority is null, or a time is negative'
        using errcode = 'OW006', hint = 'the input of a run without one is the JSON null';
    end if;
    if octet_length(input::text) > 2097152 then
        raise exception 'payload_too_large: the input is larger than 2 MiB of JSON'
        using errcode = 'OW006', hint = 'store it elsewhere and pass its address';
    end if;
    -- Only a key is compared by it. What makes it also refuses a number that no float comes near.
    if key is not null or input::text ~ '[0-9]{200}' then
        v_fingerprint := sha256(convert_to(onward.canonical(input), 'utf8'));
    end if;
    select * into v_started
    from onward.start_one(
        null,
        onward.new_id(onward.now_ms(null)),
        workflow,
        input::text,
        v_fingerprint,
        key,
        (extract(epoch from key_ttl) * 1000)::bigint,
        false,
        queue,
        priority,
        null,
        (extract(epoch from start_at) * 1000)::bigint,
        (extract(epoch from timeout) * 1000)::bigint,
        case when tags <> '{}'::jsonb then tags::text end,
        'sql: ' || current_user,
        lane
    );
    if v_started.how = 'key_conflict' then
        raise exception 'key_conflict: run % has the key %, with another input', v_started.run, key
        using errcode = 'OW006', hint = 'use another key, or send the same input';
    end if;
    return v_started.run;
end
$$;

-- Refuses a name that is empty or too long.
create or replace function onward.check_name(what text, name text, bytes_max integer) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if name is null or name = '' or octet_length(name) > bytes_max then
        raise exception 'invalid_name: the % is empty or has more than % bytes', what, bytes_max
        using errcode = 'OW006';
    end if;
end
$$;
