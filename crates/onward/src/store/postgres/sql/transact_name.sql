-- Names the transaction. A statement of its own: some servers give the name in no other.
select pg_current_xact_id()::text
