-- Lets a list find the run by this tag.
insert into onward_tags (name, value, run)
values (?1, ?2, ?3)
