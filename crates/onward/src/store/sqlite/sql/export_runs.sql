-- The condition that finds the runs after an id, in the order of ids; follows run.sql.
where r.id > ?1
order by r.id
limit ?2
