-- Forgets workers that were lost long ago and hold no run. No row is as good as lost.
delete from onward_workers
where id in (
    select id
    from onward_workers w
    where lost_at < ?1
        and not exists (select 1 from onward_runs where state = 'running' and worker = w.id)
    limit ?2
)
