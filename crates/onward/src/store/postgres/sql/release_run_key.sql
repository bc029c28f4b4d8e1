-- Frees the key of a run that has ended, if it still has it, and says whether the key was its own
-- rather than expired. The run is locked first, so that one that is retried meanwhile keeps its key.
with ended as (
    select r.id, r.workflow, r.key
    from onward.runs r
    where r.id = $1 and r.finished_at is not null
    for update
)
delete from onward.keys k
using ended r
where k.workflow = r.workflow
    and k.key = r.key
    and k.run = r.id
returning k.expires_at is null or k.expires_at > onward.now_ms($2)
