-- Lets a run begin whose turn has come and whose row cannot be read: the claim that meets it sets it aside. One
-- that has ended, or that somebody holds, has had its turn.
update onward.runs
set
    state = 'queued',
    ticket = null,
    due_at = $2,
    waits_for = null,
    stuck = null,
    wakes = wakes + 1,
    crashes = 0
where id = $1
    and finished_at is null
    and worker is null
