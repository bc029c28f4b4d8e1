-- Keeps one that came second. One holder counts once, however often it asks.
insert or ignore into onward_step_key_duplicates (token, holder, at, caller, same_input)
values (?1, ?2, ?3, ?4, ?5)
