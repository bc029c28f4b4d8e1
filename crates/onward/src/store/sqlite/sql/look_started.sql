-- Started runs by the minute, over the newest of them.
select
    created_at / 60000,
    count(*)
from (
    select created_at
    from onward_runs
    where id >= ?1
    order by id desc
    limit ?3
) as newest
where created_at >= ?2
group by 1
