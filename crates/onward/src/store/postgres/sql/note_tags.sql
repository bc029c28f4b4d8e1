-- Writes the tags that a run has by now.
update onward.inputs
set tags = $2
where run = $1
