-- How many runs a worker executes at once, so that a run that waits for a place can be told so: unknown
-- of workers that joined before. And the index along which the children of a run are listed.

alter table onward.workers add column concurrency bigint;

create index runs_children on onward.runs (parent, id)
where parent is not null;
