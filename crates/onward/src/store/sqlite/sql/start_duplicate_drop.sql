-- Forgets the oldest suppressed start of a run that has too many of them in detail.
delete from duplicates
where no = (select min(no) from duplicates where run = ?1)
