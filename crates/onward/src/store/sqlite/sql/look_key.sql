-- The key of a run, whether it has it still or had it.
select
    r.workflow,
    r.key,
    r.id,
    r.state,
    r.duplicates,
    (
        select count(*)
        from onward_duplicates as d
        where d.run = r.no and d.same_input = 0
    ),
    r.created_at,
    k.expires_at,
    k.run is not null
from onward_runs as r
left join onward_keys as k on k.workflow = r.workflow and k.key = r.key and k.run = r.no
