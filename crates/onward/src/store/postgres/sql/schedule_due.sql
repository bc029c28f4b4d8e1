-- Schedules whose time has come, by name; follows schedule.sql. A paused one is never due.
where paused_at is null
    and next_at <= $1
    and name > $2
order by name
limit $3
