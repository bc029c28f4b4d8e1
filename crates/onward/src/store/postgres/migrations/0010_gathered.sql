-- Debounced and throttled starts that met a run, each by its own id, so that one whose answer was lost
-- is answered when it is made again, and never has its input put in a second time. What is too old to
-- be made again is deleted, a few with each that comes in.
create table onward.gathered (
    start uuid primary key,
    run uuid not null,
    created_at bigint not null,
    at bigint not null
);

create index gathered_at on onward.gathered (at);
