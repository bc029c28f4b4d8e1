-- The condition that finds the run with an id; follows run.sql.
where r.id = $1
