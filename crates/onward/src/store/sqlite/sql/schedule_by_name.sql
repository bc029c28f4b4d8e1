-- The schedule of this name; follows schedule.sql.
where name = ?1
