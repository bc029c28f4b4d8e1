-- Rows of the audit, newest first, older than the given one.
select
    id,
    at,
    who,
    role,
    action,
    target,
    detail,
    outcome
from onward_audit
where id < ?1
order by id desc
limit ?2
