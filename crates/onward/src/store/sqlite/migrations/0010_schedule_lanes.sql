-- The lane of the runs that a schedule starts.
alter table onward_schedules add column lane text;
