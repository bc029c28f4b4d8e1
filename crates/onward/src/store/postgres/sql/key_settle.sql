-- Keeps what came of a hold.
update onward.step_keys
set
    state = $2,
    body = $3,
    settled_at = $4,
    until = $5
where key = $1
