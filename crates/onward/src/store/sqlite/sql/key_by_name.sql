-- Follows key.sql: the key of this name, free or not.
where key = ?1
