-- Deletes a signal, so that its sender tells it anew, and gives its bytes.
delete from onward_signals
where run = ?1
    and no = ?2
returning octet_length(name) + octet_length(key) + octet_length(body)
