-- Forgets the oldest suppressed start of a run that has too many of them in detail.
delete from onward.duplicates
where no = (select min(no) from onward.duplicates where run = $1)
