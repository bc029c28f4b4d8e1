-- The signal with this name and key, of which a repeat is known.
select no, name, step, key, fingerprint, body, at
from onward_signals
where run = ?1 and name = ?2 and key = ?3
