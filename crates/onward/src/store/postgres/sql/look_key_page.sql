-- Follows look_key.sql: those from one key on, before another.
where r.key >= $1
    and r.key < $2
    and (r.key > $1 or r.id > $3)
    and ($4::text is null or r.workflow = $4)
order by r.key, r.id
limit $5
