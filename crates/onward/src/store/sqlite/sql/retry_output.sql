-- A retried run has no failure.
delete from outputs
where no = ?1
