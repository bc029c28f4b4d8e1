-- Signals of a run are bounded in bytes, and not only in number.

-- Bytes of the names, keys and bodies of the signals that the run was sent.
alter table onward_runs add column signal_bytes integer not null default 0;

update onward_runs
set signal_bytes = (
    select coalesce(sum(octet_length(name) + octet_length(key) + octet_length(body)), 0)
    from onward_signals
    where run = onward_runs.no
)
where signals > 0;
