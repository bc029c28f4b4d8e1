-- Nobody else changes this run until the transaction ends; follows run_by_id.sql.
for update of r
