-- The lane of the runs that a schedule starts.
alter table onward.schedules add column lane text collate "C";
