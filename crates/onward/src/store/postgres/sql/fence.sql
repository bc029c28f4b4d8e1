-- The fence: one advisory lock per worker, shared by its writes and taken alone by whoever marks
-- it lost. It must be taken in a statement before the one that reads whether the worker is lost:
-- a statement sees the database as it was when it began to wait.
create or replace function onward.fence_key(worker uuid) returns bigint
language sql immutable strict as $$
    select ('x' || right(replace(worker::text, '-', ''), 16))::bit(64)::bigint
$$;

create or replace function onward.fence(workers uuid[]) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    -- Whoever starts a run in a transaction of their own has no lease, and may isolate as they like.
    if workers = '{}' then
        return;
    end if;
    -- Under any other level every statement sees the database as it was before it waited.
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the fence needs transactions that are read committed; '
            'set default_transaction_isolation so for this role or database'
            using errcode = 'OW004';
    end if;
    perform pg_advisory_xact_lock_shared(key)
    from (select onward.fence_key(worker) as key from unnest(workers) worker order by 1) keys;
end
$$;

-- Lets the commit of this transaction be answered when it is on disk, whatever the setting became
-- since the store was opened. A stricter setting stays.
create or replace function onward.durable() returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end
$$;

-- Takes the fence, and refuses a worker that is lost or not there. The last word of a transaction
-- that asked its client questions: it is sent together with the commit.
create or replace function onward.assert_live(worker uuid) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform onward.fence(array[worker]);
    perform 1 from onward.workers w where w.id = worker and w.lost_at is null;
    if not found then
        raise exception 'the worker is lost' using errcode = 'OW003';
    end if;
end
$$;

-- Whether a stored list of builds has this one. A list that cannot be read has none.
create or replace function onward.names(builds text, build text) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return coalesce(builds::jsonb ? build, false);
exception when others then
    return false;
end
$$;

-- A stored list of builds with one more. A list that cannot be read is begun anew.
create or replace function onward.with_build(builds text, build text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    v_build text := coalesce(build, '');
begin
    if onward.names(builds, v_build) then
        return builds;
    end if;
    return (coalesce(builds, '[]')::jsonb || to_jsonb(v_build))::text;
exception when others then
    return jsonb_build_array(v_build)::text;
end
$$;
