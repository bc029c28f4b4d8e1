-- What a claim took when it was first made and its worker still holds.
select no
from onward_runs
where state = 'running'
    and worker = ?1
    and ticket = ?2
