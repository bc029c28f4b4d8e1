-- What the settle of an attempt answered; null when its worker was lost instead.
select settled
from onward.attempts
where run = $1
    and attempt = $2
