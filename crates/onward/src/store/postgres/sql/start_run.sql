-- Adds a run with its input. Its id is unique, so a run is never added twice.
with started as (
    insert into onward.runs (
        id, state, attempt, worker, wakes, crashes, priority, due_at, workflow, queue, build,
        successor, waits_for, key, created_at, started_at, deadline_at, duplicates, continued_from,
        lane, notes
    )
    values (
        $1, $2, $3, $4, 0, 0, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, 0, $16, $19, $20
    )
    returning id
)
insert into onward.inputs (run, input, tags)
select id, $17, $18
from started
