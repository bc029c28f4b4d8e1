-- Gives a key that nobody has to a new run.
insert into onward.keys (workflow, key, run, fingerprint, expires_at)
values ($1, $2, $3, $4, $5)
on conflict do nothing
returning 1
