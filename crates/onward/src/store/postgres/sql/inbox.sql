-- The marks of a run, and a page of its signals after one of them, all of one moment. A page ends with the
-- signal that goes past so many bytes; `is_cut` says whether there are more.
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
    s.at,
    s.is_cut
from onward.runs r
left join lateral (
    select
        i.*,
        sum(i.bytes) over (order by i.no) - i.bytes as before,
        sum(i.bytes) over () - (
            first_value(i.bytes) over (order by i.no desc)
        ) > $3 as is_cut
    from (
        select n.*, octet_length(n.body) + octet_length(n.name) + octet_length(n.key) as bytes
        from onward.signals n
        where n.run = $1 and n.no > $2
    ) i
) s on s.before <= $3
where r.id = $1
order by s.no
