-- Suppressed starts that had another input, newest first, before the given one.
select
    d.no,
    d.at,
    d.caller,
    r.workflow,
    r.key,
    r.id,
    r.state
from onward_duplicates as d
inner join onward_runs as r on r.no = d.run
where d.same_input = 0 and d.no < ?1
order by d.no desc
limit ?2
