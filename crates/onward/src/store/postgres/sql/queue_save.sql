-- Sets a queue up, or otherwise than it was. Whose turn was last stays.
insert into onward.queues (
    name, concurrency, per_worker, rate_count, rate_period_ms, per_lane, paused_at, changed_at
)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (name) do update
set
    concurrency = excluded.concurrency,
    per_worker = excluded.per_worker,
    rate_count = excluded.rate_count,
    rate_period_ms = excluded.rate_period_ms,
    per_lane = excluded.per_lane,
    paused_at = excluded.paused_at,
    changed_at = excluded.changed_at
