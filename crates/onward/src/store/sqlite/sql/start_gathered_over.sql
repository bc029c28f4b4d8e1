-- Forgets a few notes about gathered starts that are too old to be asked for.
delete from onward_gathered
where start in (
    select start
    from onward_gathered
    where at <= ?1
    order by at
    limit ?2
)
