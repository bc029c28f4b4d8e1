-- Forgets the oldest suppressed start of a run that has too many of them in detail.
delete from onward_duplicates
where no = (select min(no) from onward_duplicates where run = ?1)
