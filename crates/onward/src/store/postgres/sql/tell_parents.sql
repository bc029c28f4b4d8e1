-- Tells the parent of a run that it has ended.
select parent, woken from onward.tell_parents($1, array[$2])
