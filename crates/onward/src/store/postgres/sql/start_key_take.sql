-- Gives a key to a new run: its holder is expired or replaced. The key is locked.
update onward.keys
set
    run = $3,
    fingerprint = $4,
    expires_at = $5
where workflow = $1
    and key = $2
