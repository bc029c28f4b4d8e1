-- Suppressed starts that had another input, newest first, before the given one.
select
    d.no,
    d.at,
    d.caller,
    r.workflow,
    r.key,
    r.id,
    r.state
from onward.duplicates as d
inner join onward.runs as r on r.id = d.run
where not d.same_input and d.no < $1
order by d.no desc
limit $2
