-- Whether the parent of a child to start is held under this lease.
select 1
from onward.runs
where id = $1
    and state = 'running'
    and worker = $2
    and attempt = $3
