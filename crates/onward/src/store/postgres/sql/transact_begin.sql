-- Says whether the run is held under this lease.
select
    exists (
        select 1
        from onward.runs r
        join onward.workers w on w.id = r.worker
        where r.id = $1
            and r.state = 'running'
            and r.worker = $2
            and r.attempt = $3
            and w.lost_at is null
    )
