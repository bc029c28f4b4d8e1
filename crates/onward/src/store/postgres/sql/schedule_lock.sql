-- Nobody else changes or fires this schedule until the transaction ends; follows
-- schedule_by_name.sql.
for update
