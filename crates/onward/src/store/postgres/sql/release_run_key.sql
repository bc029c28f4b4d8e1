-- Frees the key of a run that has ended, if it still has it, and says whether the key was its own
-- rather than expired.
delete from onward.keys k
using onward.runs r
where r.id = $1
    and r.finished_at is not null
    and k.workflow = r.workflow
    and k.key = r.key
    and k.run = r.id
returning k.expires_at is null or k.expires_at > $2
