-- The audit: who changed what through a server. Ids sort by the time they were made. And the two
-- indexes that looks at keys walk along: the most duplicated runs, and starts with another input.
-- Both are partial, so that a start which suppresses nothing does not touch them.

create table onward_audit (
    id blob primary key,
    at integer not null,
    who text not null,
    role text not null,
    action text not null,
    target text not null,
    detail text,
    outcome text
) strict, without rowid;

create index onward_runs_duplicated on onward_runs (duplicates, id)
where duplicates > 0;

create index onward_duplicates_other on onward_duplicates (no)
where same_input = 0;
