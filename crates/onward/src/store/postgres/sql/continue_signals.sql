-- Gives a run what the one that it goes on for has not taken, and before that the latest signals with a
-- key of the sender's that it has taken, without a step and a body: to know a repeat by. What the engine
-- sent, whose names begin with a dollar, is for that run alone.
with taken as (
    select s.no, s.name, s.key, s.fingerprint, s.at
    from onward.signals s
    where s.run = $1
        and left(s.key, 1) = '='
        and left(s.name, 1) <> '$'
        and (
            s.step = ''
            or exists (
                select from onward.records r
                where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
            )
        )
    order by s.no desc
    limit $3
), handed_on as (
    select 1 as part, t.no, t.name, '' as step, t.key, t.fingerprint, 'null' as body, t.at
    from taken t
    union all
    select 2, s.no, s.name, s.step, s.key, s.fingerprint, s.body, s.at
    from onward.signals s
    where s.run = $1
        and s.step > ''
        and left(s.name, 1) <> '$'
        and not exists (
            select from onward.records r
            where r.run = s.run and r.step = s.step || '#' || s.no and r.slot = 0
        )
), added as (
    insert into onward.signals (run, no, name, step, key, fingerprint, body, at)
    select
        $2, row_number() over (order by h.part, h.no), h.name, h.step, h.key, h.fingerprint, h.body,
        h.at
    from handed_on h
    returning octet_length(name) + octet_length(key) + octet_length(body) as bytes
)
update onward.runs
set
    signals = (select count(*) from added),
    signal_bytes = (select coalesce(sum(bytes), 0) from added)
where id = $2
