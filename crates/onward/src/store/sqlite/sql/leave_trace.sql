-- Keeps the builds of the attempts that a leaving worker gives up.
insert or replace into attempts (run, attempt, build, settled)
select
    no,
    attempt,
    coalesce(build, ''),
    null
from runs
where state = 'running'
    and worker = ?1
