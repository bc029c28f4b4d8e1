-- Keeps the builds of the attempts that a leaving worker gives up.
insert or replace into onward_attempts (run, attempt, build, settled)
select
    no,
    attempt,
    coalesce(build, ''),
    null
from onward_runs
where state = 'running'
    and worker = ?1
