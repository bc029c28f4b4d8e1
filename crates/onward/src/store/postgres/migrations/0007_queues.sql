-- Queues with limits, and lanes within a queue.
--
-- queues    those that have limits or are paused, each whole in one row, which a claim from the queue
--           locks. `last_lane` is the lane whose turn was last. Few, and read by every claim.
-- grants    how many runs of a queue with a rate workers were given at a time. What has left the
--           period is deleted.

create table onward.queues (
    name text collate "C" primary key,
    concurrency integer,
    per_worker integer,
    rate_count integer,
    rate_period_ms bigint,
    per_lane integer,
    paused_at bigint,
    changed_at bigint,
    last_lane text collate "C"
) with (fillfactor = 50);

create table onward.grants (
    queue text collate "C" not null,
    at bigint not null,
    count bigint not null,
    primary key (queue, at)
);

alter table onward.runs add column lane text collate "C";

-- What is running, by queue and lane: what limits are counted by. No queue's name is empty; who asks
-- for this index says so, and no other statement is planned with it by mistake.
create index runs_slots on onward.runs (queue, lane, worker)
where state = 'running' and queue > '';

-- What is queued in lanes, lane by lane, in the order in which each gives its runs.
create index runs_lanes
on onward.runs (queue, workflow, lane, (started_at is null), priority desc, due_at, id)
where state = 'queued' and lane is not null and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

-- These have other parameters from here on, which cannot be replaced.
drop function if exists onward.start_runs(
    bigint, uuid[], uuid[], text[], text[], integer[], text[], text[], bigint[], bigint[],
    bigint[], text[], bytea[], bigint[], uuid[], text[], uuid[], text[], text[], uuid[], uuid[],
    uuid[], integer[], text[], boolean[]
);
drop function if exists onward.start_one(
    bigint, uuid, text, text, bytea, text, bigint, boolean, text, integer, bigint, bigint, bigint,
    text, text
);
drop function if exists onward.start(
    text, jsonb, text, text, integer, timestamptz, interval, interval, jsonb
);
