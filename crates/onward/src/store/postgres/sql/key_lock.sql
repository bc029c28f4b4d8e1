-- Follows key_by_name.sql: nobody else changes it before this transaction ends.
for update
