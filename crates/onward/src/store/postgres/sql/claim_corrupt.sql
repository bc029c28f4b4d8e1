-- Sets a run aside that cannot be read, so that it holds up no other. A list of builds that cannot
-- be read is begun anew.
update onward.runs
set
    state = 'waiting',
    worker = null,
    ticket = null,
    due_at = null,
    waits_for = $4,
    stuck = $5,
    stuck_builds = onward.with_build(stuck_builds, build)
where id = $1
    and state = 'running'
    and worker = $2
    and attempt = $3
