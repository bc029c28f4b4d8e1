-- Deletes the oldest rows of the audit that were kept for long enough, a few of them.
delete from onward_audit
where at < ?1
    and id in (
        select id
        from onward_audit
        order by id
        limit ?2
    )
