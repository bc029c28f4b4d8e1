-- Gives the key to a new run. An expired or replaced holder loses it by this.
insert into onward_keys (workflow, key, run, fingerprint, expires_at)
values (?1, ?2, ?3, ?4, ?5)
on conflict (workflow, key) do update
set
    run = excluded.run,
    fingerprint = excluded.fingerprint,
    expires_at = excluded.expires_at
