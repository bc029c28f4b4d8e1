-- Keeps the builds of the attempts that a leaving worker gives up, of as many runs as are queued with it.
insert or replace into onward_attempts (run, attempt, build, settled)
select
    no,
    attempt,
    coalesce(build, ''),
    null
from onward_runs
where state = 'running'
    and worker = ?1
order by ticket, no
limit ?2
