-- Adds runs' rows as they stood in another store. Ids are unique, so none is added twice.
insert into onward.runs (
    id, state, attempt, worker, wakes, crashes, priority, due_at, cancel_at, paused_at,
    finished_at, workflow, queue, build, successor, waits_for, stuck, stuck_builds, key,
    created_at, started_at, deadline_at, retried_at, failed_step, duplicates, continued_from,
    continued_as, code_change, signals, parent, parent_step, detached, paused_by,
    forked_from, notes, lane, signal_bytes
)
select *
from unnest(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37
)
