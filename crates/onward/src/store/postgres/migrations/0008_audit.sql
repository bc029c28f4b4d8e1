-- The audit: who changed what through a server. Ids sort by the time they were made. And the two
-- indexes that looks at keys walk along: the most duplicated runs, and starts with another input.
-- Both are partial, so that a start which suppresses nothing does not touch them.

create table onward.audit (
    id uuid primary key,
    at bigint not null,
    who text not null,
    role text not null,
    action text not null,
    target text not null,
    detail text,
    outcome text
);

create index runs_duplicated on onward.runs (duplicates, id)
where duplicates > 0;

create index duplicates_other on onward.duplicates (no)
where not same_input;

-- It takes the id of one run, too; its new form is written with the other functions.
drop function if exists onward.prune(bigint, text[], integer);
