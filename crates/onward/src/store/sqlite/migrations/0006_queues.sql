-- Queues with limits, and lanes within a queue.
--
-- queues    those that have limits or are paused, each whole in one row. `last_lane` is the lane whose
--           turn was last. A claim reads them all, so they are few.
-- grants    how many runs of a queue with a rate workers were given at a time. What has left the
--           period is deleted.

create table onward_queues (
    name text primary key,
    concurrency integer,
    per_worker integer,
    rate_count integer,
    rate_period_ms integer,
    per_lane integer,
    paused_at integer,
    changed_at integer,
    last_lane text
) strict, without rowid;

create table onward_grants (
    queue text not null,
    at integer not null,
    count integer not null,
    primary key (queue, at)
) strict, without rowid;

alter table onward_runs add column lane text;

-- What is running, by queue and lane: what limits are counted by. No queue's name is empty; who asks
-- for this index says so, and no other statement is planned with it by mistake.
create index onward_runs_slots on onward_runs (queue, lane, worker)
where state = 'running' and queue > '';

-- What is queued in lanes, lane by lane, in the order in which each gives its runs.
create index onward_runs_lanes
on onward_runs (queue, workflow, lane, (started_at is null), priority desc, due_at, id)
where state = 'queued' and lane is not null and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);
