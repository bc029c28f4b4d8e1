-- Gives a run that has not begun another input.
update onward.inputs
set input = $2
where run = $1
