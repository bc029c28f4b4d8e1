-- Keeps what the run was started with, in the run's own transaction.
insert into onward_inputs (no, input, tags)
values (?1, ?2, ?3)
