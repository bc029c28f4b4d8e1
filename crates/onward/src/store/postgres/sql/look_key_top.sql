-- Follows look_key.sql: those with the most suppressed starts.
where r.duplicates > 0 and r.key is not null
order by r.duplicates desc, r.id desc
limit $1
