-- Gives a run what the one that it goes on for has not taken.
with untaken as (
    insert into onward.signals (run, no, name, step, key, fingerprint, body, at)
    select
        $2, row_number() over (order by s.no), s.name, s.step, s.key, s.fingerprint, s.body, s.at
    from onward.signals s
    where s.run = $1
        and not exists (
            select from onward.records r
            where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
        )
    returning no
)
update onward.runs
set signals = (select count(*) from untaken)
where id = $2
