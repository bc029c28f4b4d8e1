-- Queues the waiting runs whose time has come since another, longest due first. The due time stays, so
-- that who waited longest is claimed first.
create or replace function onward.wake(p_from bigint, p_now bigint, p_limit integer) returns uuid[]
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    v_woken uuid[];
begin
    with woken as (
        update onward.runs
        set
            state = 'queued',
            waits_for = null,
            stuck = null,
            wakes = wakes + 1
        where id = any (array(
            select id
            from onward.runs
            where state = 'waiting'
                and due_at >= p_from
                and due_at <= p_now
            order by due_at, id
            limit p_limit
            for update skip locked
        ))
        returning id
    )
    select coalesce(array_agg(id), '{}') into v_woken from woken;
    return v_woken;
end
$$;
