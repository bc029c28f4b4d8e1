-- The steps of a run whose children failed, and of whose ends it has been told but has no record.
select s.step, c.id
from onward.runs c
join onward.signals s on s.run = c.parent and s.step = c.parent_step
where c.parent = $1
    and c.state = 'failed'
    and c.deadline_at is not null
    and not exists (
        select from onward.records r
        where r.run = s.run and r.step = s.step || '#' || s.no and r.voided_at is null
    )
order by s.no
limit $2
