-- Asks a run to end whose row cannot be read: the claim that meets it sets it aside.
update onward.runs
set cancel_at = $2
where id = $1
    and cancel_at is null
