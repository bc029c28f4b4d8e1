-- Counts a run that a worker is given against the rate of its queue.
insert into onward_grants (queue, at, count)
values (?1, ?2, 1)
on conflict (queue, at) do update
set count = count + 1
