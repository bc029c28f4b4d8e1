-- What is queued without a lane, in the order of claims, so that a queue with a limit per lane finds
-- these behind any number of runs whose lanes are full. Who asks for this index says `lane is null`,
-- and no other statement is planned with it by mistake. The lane is a column of it only so that it is
-- preferred to the index of all queued runs, which would be walked through the full lanes.
create index onward_runs_laneless on onward_runs (queue, workflow, lane, priority desc, due_at, id)
where state = 'queued' and lane is null and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);
