-- The steps of a run whose children failed, and of whose ends it has been told but has no record.
select s.step, c.id
from onward_runs p
join onward_runs c on c.parent = p.id
join onward_signals s on s.run = p.no and s.step = c.parent_step
where p.no = ?1
    and c.parent is not null
    and c.state = 'failed'
    and c.deadline_at is not null
    and not exists (
        select 1 from onward_records r
        where r.run = s.run and r.step = s.step || '#' || s.no and r.voided_at is null
    )
order by s.no
limit ?2
