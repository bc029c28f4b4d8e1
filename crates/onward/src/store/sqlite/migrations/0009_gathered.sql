-- Debounced and throttled starts that met a run, each by its own id, so that one whose answer was lost
-- is answered when it is made again, and never has its input put in a second time. What is too old to
-- be made again is deleted, a few with each that comes in.
create table onward_gathered (
    start blob primary key,
    run blob not null,
    created_at integer not null,
    at integer not null
) strict, without rowid;

create index onward_gathered_at on onward_gathered (at);
