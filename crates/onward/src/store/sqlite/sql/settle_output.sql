-- Keeps what a run ended with, in the transaction that ends it.
insert or replace into onward_outputs (no, output, failure)
values (?1, ?2, ?3)
