-- The latest signals with a key of the sender's that the run has taken, or one that it goes on for:
-- what the next one knows a repeat by.
select s.no, s.name, s.step, s.key, s.fingerprint, s.body, s.at
from onward_signals s
where s.run = ?1
    and substr(s.key, 1, 1) = '='
    and substr(s.name, 1, 1) <> '$'
    and (
        s.step = ''
        or exists (
            select 1 from onward_records r
            where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
        )
    )
order by s.no desc
limit ?2
