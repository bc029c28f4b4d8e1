-- The database's time.
select onward.now_ms($1)
