-- How many queues are set up.
select count(*)
from onward.queues
