-- The signals that are not in these runs' histories, in the order in which they came.
select s.no, s.name, s.step, s.key, s.fingerprint, s.body, s.at, s.run
from onward.signals s
where s.run = any ($1)
    and s.step > ''
    and not exists (
        select from onward.records r
        where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
    )
order by s.run, s.no
