-- A deadline holds for every run that nobody holds, and not only for one that is paused or stuck.

-- The deadline for which a sweep has seen that it passed, where the run has something to undo: it is
-- then up to whoever claims it.
alter table onward_runs add column late_at integer;

drop index onward_runs_late;
drop index onward_runs_paused_late;

create index onward_runs_late on onward_runs (deadline_at, id)
where deadline_at is not null and late_at is not deadline_at and cancel_at is null
    and (state = 'queued' or state = 'waiting')
    and (stuck is null or stuck <> 'corrupt_record');
