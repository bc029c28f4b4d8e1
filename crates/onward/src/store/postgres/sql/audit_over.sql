-- Deletes the oldest rows of the audit that were kept for long enough, a few of them.
delete from onward.audit
where at < onward.now_ms($1) - $2
    and id in (
        select id
        from onward.audit
        order by id
        limit $3
    )
