-- A retried run has no failure.
delete from onward.outputs
where run = $1
