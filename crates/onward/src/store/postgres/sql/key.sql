-- A step key.
select
    key,
    state,
    holder,
    attempt,
    caller,
    token,
    fingerprint,
    body,
    taken_at,
    settled_at,
    until,
    duplicates
from onward.step_keys
