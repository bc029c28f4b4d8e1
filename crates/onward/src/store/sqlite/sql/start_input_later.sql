-- Gives a run that has not begun another input.
update onward_inputs
set input = ?2
where no = ?1
