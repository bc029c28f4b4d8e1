-- Deletes a signal, so that its sender tells it anew.
delete from onward.signals
where run = $1
    and no = $2
