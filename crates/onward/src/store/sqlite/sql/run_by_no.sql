-- The condition that finds the run with a number; follows run.sql.
where r.no = ?1
