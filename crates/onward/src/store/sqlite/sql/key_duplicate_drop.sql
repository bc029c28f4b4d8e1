-- Forgets the oldest of those that came second, of a key that has too many in detail.
delete from onward_step_key_duplicates
where no = (select min(no) from onward_step_key_duplicates where token = ?1)
