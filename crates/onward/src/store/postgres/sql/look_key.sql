-- The key of a run, whether it has it still or had it.
select
    r.workflow,
    r.key,
    r.id,
    r.state,
    r.duplicates,
    (
        select count(*)
        from onward.duplicates as d
        where d.run = r.id and not d.same_input
    ),
    r.created_at,
    k.expires_at,
    k.run is not null
from onward.runs as r
left join onward.keys as k on k.workflow = r.workflow and k.key = r.key and k.run = r.id
