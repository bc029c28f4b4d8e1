-- Writes the tags that a run has by now.
update onward_inputs
set tags = ?2
where no = ?1
