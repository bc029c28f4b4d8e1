-- The condition that finds runs by their ids, in the order of ids; follows run.sql.
where r.id = any ($1)
order by r.id
