-- Writes a schedule back to its row, which was read in the same transaction.
update onward_schedules
set
    spec = ?2,
    workflow = ?3,
    input = ?4,
    queue = ?5,
    priority = ?6,
    timeout_ms = ?7,
    tags = ?8,
    overlap = ?9,
    catch_up = ?10,
    generation = ?11,
    created_at = ?12,
    changed_at = ?13,
    paused_at = ?14,
    next_at = ?15,
    latest_at = ?16,
    latest_workflow = ?17,
    latest_key = ?18,
    lane = ?19
where name = ?1
