-- Deletes a signal, so that its sender tells it anew.
with gone as (
    delete from onward.signals
    where run = $1
        and no = $2
    returning octet_length(name) + octet_length(key) + octet_length(body) as bytes
)
update onward.runs
set signal_bytes = signal_bytes - (select coalesce(sum(bytes), 0) from gone)
where id = $1
