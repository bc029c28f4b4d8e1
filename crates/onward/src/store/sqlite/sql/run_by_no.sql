where r.no = ?1
