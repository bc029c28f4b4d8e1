-- Adds the histories of imported runs.
insert into onward.records (
    run, seq, step, slot, kind, body, try_number, attempt, began_at, at, next_at, foreign_await,
    voided_at
)
select *
from unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
