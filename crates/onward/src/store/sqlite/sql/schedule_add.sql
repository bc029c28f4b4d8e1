-- Adds a schedule whose name nobody has.
insert into onward_schedules (
    name, spec, workflow, input, queue, priority, timeout_ms, tags, overlap, catch_up,
    generation, created_at, changed_at, paused_at, next_at, latest_at, latest_workflow,
    latest_key, lane
)
values (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19
)
on conflict (name) do nothing
returning 1
