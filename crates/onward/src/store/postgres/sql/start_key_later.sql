-- Lets a key stand for another input of the same run.
update onward.keys
set fingerprint = $3
where workflow = $1
    and key = $2
