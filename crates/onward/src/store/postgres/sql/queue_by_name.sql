-- The condition that finds a queue by its name; follows queue.sql.
where name = $1
