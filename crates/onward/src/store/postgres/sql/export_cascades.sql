-- Those of these runs whose children are still to be asked to end.
select id
from onward.runs
where id = any ($1)
    and cascades is not null
