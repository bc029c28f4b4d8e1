-- How many standbys this server streams to while its commits wait for none. Who may not see what they stream
-- is shown that they are there; those of a logical slot and of a backup are none.
select case when current_setting('synchronous_standby_names') = '' then count(*) else 0 end
from pg_stat_replication r
where coalesce(r.state, '') <> 'backup'
    and not exists (
        select from pg_replication_slots s
        where s.active_pid = r.pid and s.slot_type = 'logical'
    )
