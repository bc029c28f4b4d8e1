-- Follows key.sql: the keys that are not free, by name, after the given one.
where key > $1 and (until is null or until > onward.now_ms($2))
order by key
limit $3
