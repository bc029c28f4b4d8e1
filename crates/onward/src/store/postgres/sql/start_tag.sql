-- Lets a list find the run by this tag.
insert into onward.tags (name, value, run)
values ($1, $2, $3)
