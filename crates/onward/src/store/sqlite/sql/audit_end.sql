-- Says how it went, unless that is known; finds the row in any case.
update onward_audit
set
    detail = case when outcome is null then ?3 else detail end,
    outcome = coalesce(outcome, ?2)
where id = ?1
