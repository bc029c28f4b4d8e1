-- The marks of a run, and its signals after one of them, all of one moment.
select
    r.wakes,
    r.cancel_at is not null,
    r.paused_at is not null,
    s.no,
    s.name,
    s.step,
    s.key,
    s.fingerprint,
    s.body,
    s.at
from onward.runs r
left join onward.signals s on s.run = r.id and s.no > $2
where r.id = $1
order by s.no
