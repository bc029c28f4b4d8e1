-- A retried run has no failure.
delete from onward_outputs
where no = ?1
