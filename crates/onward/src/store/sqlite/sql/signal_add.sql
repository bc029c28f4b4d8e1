-- Keeps a signal.
insert into onward_signals (run, no, name, step, key, fingerprint, body, at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
