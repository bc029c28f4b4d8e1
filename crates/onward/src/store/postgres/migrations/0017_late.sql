-- A deadline holds for every run that nobody holds, and not only for one that is paused or stuck.

-- The deadline for which a sweep has seen that it passed, where the run has something to undo: it is
-- then up to whoever claims it.
alter table onward.runs add column late_at bigint;

drop index onward.runs_late;
drop index onward.runs_paused_late;

create index runs_late on onward.runs (deadline_at, id)
where deadline_at is not null and late_at is distinct from deadline_at and cancel_at is null
    and (state = 'queued' or state = 'waiting')
    and (stuck is null or stuck <> 'corrupt_record');

-- It answers more from here on, which cannot be replaced.
drop function if exists onward.sweep(bigint, uuid, boolean, integer, bigint, integer);
drop function if exists onward.sweep_late(bigint, integer);
drop function if exists onward.sweep_late_paused(bigint, integer);
