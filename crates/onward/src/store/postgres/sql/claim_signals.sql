-- A page of signals for each of these runs, in the order in which they came: signals that are not in its history
-- and have a number up to its count. A page ends with the signal that goes past `$3` bytes; `is_cut` says whether
-- more follow.
select i.no, i.name, i.step, i.key, i.fingerprint, i.body, i.at, i.run, i.is_cut
from (
    select
        s.*,
        sum(s.bytes) over (partition by s.run order by s.no) - s.bytes as before,
        sum(s.bytes) over (partition by s.run) - (
            first_value(s.bytes) over (partition by s.run order by s.no desc)
        ) > $3 as is_cut
    from (
        select n.*, octet_length(n.body) + octet_length(n.name) + octet_length(n.key) as bytes
        from unnest($1, $2) c (run, count)
        join onward.signals n on n.run = c.run and n.no <= c.count
        where n.step > ''
            and not exists (
                select from onward.records r
                where r.run = n.run and r.step = n.step || '#' || n.no and r.slot = 0
            )
    ) s
) i
where i.before <= $3
order by i.run, i.no
