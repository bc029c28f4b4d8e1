-- The runs of one batch, in the order of ids: up to a number of them, and none more once those before it fill
-- the batch with bytes or rows. Sizes are known without reading what is stored out of line.
select id
from (
    select
        id,
        coalesce(sum(bytes) over before, 0) as bytes_before,
        coalesce(sum(parts) over before, 0) as parts_before
    from (
        select
            r.id,
            coalesce(octet_length(i.input), 0)
                + coalesce(octet_length(o.output), 0)
                + coalesce(octet_length(o.failure), 0)
                + c.bytes + s.bytes + l.bytes as bytes,
            c.parts + s.parts + l.parts as parts
        from onward.runs r
        left join onward.inputs i on i.run = r.id
        left join onward.outputs o on o.run = r.id
        cross join lateral (
            select
                coalesce(sum(octet_length(step) + coalesce(octet_length(body), 0)), 0) as bytes,
                count(*) as parts
            from onward.records
            where run = r.id
        ) c
        cross join lateral (
            select
                coalesce(sum(octet_length(name) + octet_length(key) + octet_length(body)), 0) as bytes,
                count(*) as parts
            from onward.signals
            where run = r.id
        ) s
        cross join lateral (
            select coalesce(sum(octet_length(text)), 0) as bytes, count(*) as parts
            from onward.log
            where run = r.id
        ) l
        where r.id > $1
        order by r.id
        limit $2
    ) sized
    window before as (order by id rows between unbounded preceding and 1 preceding)
) placed
where bytes_before < $3 and parts_before < $4
order by id
