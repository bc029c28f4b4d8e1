where r.id = ?1
