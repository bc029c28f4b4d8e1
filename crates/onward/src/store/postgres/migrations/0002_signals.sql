-- Signals, and the runs that runs start.
--
-- signals   what came in for a run from outside, the ends of its children among it. Which of them
--           the run has taken is in its records: `step` and `no` make the step.

create table onward.signals (
    run uuid not null,
    no bigint not null,
    name text collate "C" not null,
    step text collate "C" not null,
    key text collate "C" not null,
    fingerprint bytea not null,
    body text not null,
    at bigint not null,
    primary key (run, no)
);

create unique index signals_key on onward.signals (run, name, key);

alter table onward.runs add column signals bigint not null default 0;

-- The run that started this one, the step there that its end is told to, and whether this one goes
-- on when that one is cancelled.
alter table onward.runs add column parent uuid;
alter table onward.runs add column parent_step text;
alter table onward.runs add column detached boolean not null default false;

-- Set on a cancelled run while children of it are to be cancelled.
alter table onward.runs add column cascades boolean;

create index runs_child on onward.runs (parent, id)
where parent is not null and finished_at is null and not detached;

create index runs_cascades on onward.runs (id)
where cascades is not null;

-- These have other parameters or answers from here on, which cannot be replaced.
drop function if exists onward.sweep(bigint, uuid, boolean, integer, bigint);
drop function if exists onward.start_runs(
    bigint, uuid[], uuid[], text[], text[], integer[], text[], text[], bigint[], bigint[],
    bigint[], text[], bytea[], bigint[], uuid[], text[], uuid[], text[], text[]
);
