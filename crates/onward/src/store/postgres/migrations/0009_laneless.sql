-- What is queued without a lane, in the order of claims, so that a queue with a limit per lane finds
-- these behind any number of runs whose lanes are full. Who asks for this index says `lane is null`,
-- and no other statement is planned with it by mistake.
create index runs_laneless on onward.runs (queue, workflow, priority desc, due_at, id)
where state = 'queued' and lane is null and crashes < 3 and paused_at is null
    and (stuck_builds is null or cancel_at is not null);

-- It has other parameters from here on, which cannot be replaced.
drop function if exists onward.claim_laneless(text, text[], integer, integer);
