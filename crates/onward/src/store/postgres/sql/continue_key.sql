-- Hands a run's key to the run that goes on with its work.
update onward.keys
set run = $4
where workflow = $1
    and key = $2
    and run = $3
