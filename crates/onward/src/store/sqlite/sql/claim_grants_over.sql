-- Forgets grants that have left the period.
delete from onward_grants
where queue = ?1
    and at <= ?2
