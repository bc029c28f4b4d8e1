-- The signals of a run that are not in its history, in the order in which they came, without what the engine
-- sent: those are for that run alone.
select s.no, s.name, s.step, s.key, s.fingerprint, s.body, s.at
from onward_signals s
where s.run = ?1
    and s.step > ''
    and substr(s.name, 1, 1) <> '$'
    and not exists (
        select 1 from onward_records r
        where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
    )
order by s.no
