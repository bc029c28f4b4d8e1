-- Adds a record, unless its slot is taken.
insert into onward.records (
    run, seq, step, slot, kind, body, try_number, attempt, began_at, at, next_at, foreign_await,
    voided_at
)
values ($1, $3, $4, $5, $6, $7, $8, $2, $9, $10, $11, $12, $13)
on conflict do nothing
returning 1
