-- Steering runs, and what they note on themselves.
--
-- log   the last lines that a run's code wrote, of its function or of a step's body.

create table onward_log (
    run integer not null,
    no integer not null,
    at integer not null,
    step text,
    try_number integer,
    text text not null,
    primary key (run, no)
) strict, without rowid;

-- Who paused a run; the run whose first records it began with; what its code noted on it.
alter table onward_runs add column paused_by text;
alter table onward_runs add column forked_from blob;
alter table onward_runs add column notes text;

-- A holder is told of a pause as of a cancel.
create index onward_runs_pausing on onward_runs (worker)
where state = 'running' and paused_at is not null;

create index onward_runs_paused_late on onward_runs (deadline_at, id)
where paused_at is not null and deadline_at is not null
    and (state = 'queued' or state = 'waiting');
