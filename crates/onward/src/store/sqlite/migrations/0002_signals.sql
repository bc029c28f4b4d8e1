-- Signals, and the runs that runs start.
--
-- signals   what came in for a run from outside, the ends of its children among it. Which of them
--           the run has taken is in its records: `step` and `no` make the step.

create table onward_signals (
    run integer not null,
    no integer not null,
    name text not null,
    step text not null,
    key text not null,
    fingerprint blob not null,
    body text not null,
    at integer not null,
    primary key (run, no)
) strict, without rowid;

create unique index onward_signals_key on onward_signals (run, name, key);

alter table onward_runs add column signals integer not null default 0;

-- The run that started this one, the step there that its end is told to, and whether this one goes
-- on when that one is cancelled.
alter table onward_runs add column parent blob;
alter table onward_runs add column parent_step text;
alter table onward_runs add column detached integer not null default 0;

-- Set on a cancelled run while children of it are to be cancelled.
alter table onward_runs add column cascades integer;

create index onward_runs_child on onward_runs (parent, id)
where parent is not null and finished_at is null and detached = 0;

create index onward_runs_cascades on onward_runs (id)
where cascades is not null;
