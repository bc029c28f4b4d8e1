-- Forgets grants that have left the period, and those that a clock made which was ahead.
delete from onward_grants
where queue = ?1
    and (at <= ?2 or at > ?3)
