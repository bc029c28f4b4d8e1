-- The signals that are not in the run's history and that it counts, in the order in which they came.
select s.no, s.name, s.step, s.key, s.fingerprint, s.body, s.at
from onward_signals s
where s.run = ?1
    and s.no <= ?2
    and s.step > ''
    and not exists (
        select 1 from onward_records r
        where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
    )
order by s.no
