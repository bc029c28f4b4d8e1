-- Keeps a suppressed start. One start counts once, however often it is repeated.
insert into onward_duplicates (run, start, at, caller, same_input)
select ?1, ?2, ?3, ?4, ?5
where not exists (select 1 from onward_duplicates where run = ?1 and start = ?2)
