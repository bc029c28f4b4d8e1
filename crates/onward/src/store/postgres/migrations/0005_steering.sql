-- Steering runs, and what they note on themselves.
--
-- log   the last lines that a run's code wrote, of its function or of a step's body.

create table onward.log (
    run uuid not null,
    no bigint not null,
    at bigint not null,
    step text collate "C",
    try_number integer,
    text text not null,
    primary key (run, no)
);

-- Who paused a run; the run whose first records it began with; what its code noted on it.
alter table onward.runs add column paused_by text;
alter table onward.runs add column forked_from uuid;
alter table onward.runs add column notes text;

-- A holder is told of a pause as of a cancel.
create index runs_pausing on onward.runs (worker, id)
where state = 'running' and paused_at is not null;

create index runs_paused_late on onward.runs (deadline_at, id)
where paused_at is not null and deadline_at is not null
    and (state = 'queued' or state = 'waiting');

-- It answers more from here on, which cannot be replaced.
drop function if exists onward.claim(
    bigint, uuid, bigint, text, text[], text[], integer, boolean, integer, bigint
);
