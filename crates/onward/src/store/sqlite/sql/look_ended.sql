-- Ended runs by the minute and how they ended, over the newest of each kind.
select
    finished_at / 60000,
    state,
    count(*)
from (
    select
        state,
        finished_at
    from (
        select
            state,
            finished_at
        from onward_runs
        where state = 'completed' and finished_at is not null and finished_at >= ?1
        order by finished_at desc
        limit ?2
    ) as completed
    union all
    select
        state,
        finished_at
    from (
        select
            state,
            finished_at
        from onward_runs
        where state = 'failed' and finished_at is not null and finished_at >= ?1
        order by finished_at desc
        limit ?2
    ) as failed
    union all
    select
        state,
        finished_at
    from (
        select
            state,
            finished_at
        from onward_runs
        where state = 'cancelled' and finished_at is not null and finished_at >= ?1
        order by finished_at desc
        limit ?2
    ) as cancelled
) as ended
group by 1, 2
