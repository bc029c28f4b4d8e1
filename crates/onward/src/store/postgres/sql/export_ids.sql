-- The runs of one batch, in the order of ids: up to a number of them, and none more once those
-- before it fill the batch. Sizes are known without reading what is stored out of line.
select id
from (
    select
        id,
        coalesce(sum(bytes) over (order by id rows between unbounded preceding and 1 preceding), 0)
            as bytes_before
    from (
        select
            r.id,
            coalesce(octet_length(i.input), 0)
                + coalesce(octet_length(o.output), 0)
                + coalesce(octet_length(o.failure), 0)
                + coalesce((
                    select sum(octet_length(step) + coalesce(octet_length(body), 0))
                    from onward.records
                    where run = r.id
                ), 0) as bytes
        from onward.runs r
        left join onward.inputs i on i.run = r.id
        left join onward.outputs o on o.run = r.id
        where r.id > $1
        order by r.id
        limit $2
    ) sized
) placed
where bytes_before < $3
order by id
