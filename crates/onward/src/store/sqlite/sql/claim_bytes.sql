-- Bytes of the history and of the signals that a run is claimed with. Of a column alone the length is known
-- without reading it.
select
    coalesce((
        select sum(coalesce(octet_length(body), 0) + octet_length(step))
        from onward_records
        where run = ?1
    ), 0) + coalesce((
        select sum(octet_length(body) + octet_length(name) + octet_length(key))
        from onward_signals
        where run = ?1 and step > ''
    ), 0)
