-- A payload that Postgres' own JSON cannot hold, as a text with \u0000 in it, is not shown by the views,
-- instead of making them an error for every other.
create function onward.shown(payload text) returns jsonb
language plpgsql immutable strict as $$
begin
    return payload::jsonb;
exception when others then
    return null;
end
$$;

create or replace view onward.runs_json as
select
    r.id,
    r.workflow,
    r.state,
    r.queue,
    r.priority,
    r.key,
    onward.shown(i.input) as input,
    onward.shown(o.output) as output,
    onward.shown(o.failure) as failure,
    onward.shown(r.waits_for) as waits_for,
    to_timestamp(r.created_at / 1000.0) as created_at,
    to_timestamp(r.due_at / 1000.0) as due_at,
    to_timestamp(r.started_at / 1000.0) as started_at,
    to_timestamp(r.finished_at / 1000.0) as finished_at
from onward.runs r
left join onward.inputs i on i.run = r.id
left join onward.outputs o on o.run = r.id;

create or replace view onward.records_json as
select
    run,
    seq,
    step,
    kind,
    onward.shown(body) as body,
    try_number,
    attempt,
    to_timestamp(at / 1000.0) as at,
    to_timestamp(voided_at / 1000.0) as voided_at
from onward.records;
