-- Deletes a tag that a run has changed.
delete from onward.tags
where name = $1
    and value = $2
    and run = $3
