-- Runs that nobody holds whose deadline has passed, the longest first, but for those for which a
-- sweep has seen that. Those that are asked to end do so; what cannot be read cannot be ended.
select no
from onward_runs
where deadline_at is not null
    and deadline_at <= ?1
    and late_at is not deadline_at
    and cancel_at is null
    and (state = 'queued' or state = 'waiting')
    and (stuck is null or stuck <> 'corrupt_record')
order by deadline_at, id
limit ?2
