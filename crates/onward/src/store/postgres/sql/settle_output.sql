-- Keeps what a run ended with, in the transaction that ends it.
insert into onward.outputs (run, output, failure)
values ($1, $2, $3)
on conflict (run) do update
set
    output = excluded.output,
    failure = excluded.failure
