-- Claims are told from where on to look.

drop function if exists onward.claim(
    bigint, uuid, bigint, text, text[], text[], integer, boolean, integer, bigint
);
drop function if exists onward.claim_first(text[], text[], text[], boolean, integer);
drop function if exists onward.claim_any(text[], text[], text[], boolean);
drop function if exists onward.wake(bigint, integer);
