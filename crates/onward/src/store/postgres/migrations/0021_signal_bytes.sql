-- Signals of a run are bounded in bytes, and not only in number.

-- Bytes of the names, keys and bodies of the signals that the run was sent.
alter table onward.runs add column signal_bytes bigint not null default 0;

update onward.runs r
set signal_bytes = (
    select coalesce(sum(octet_length(s.name) + octet_length(s.key) + octet_length(s.body)), 0)
    from onward.signals s
    where s.run = r.id
)
where r.signals > 0;

-- They take or answer something else from here on, which cannot be replaced.
drop function if exists onward.signal_one(bigint, uuid, text, text, text, bytea, text, bigint);
drop function if exists onward.signal_alone(bigint, uuid, text, text, text, bytea, text, bigint);
drop function if exists onward.signal_inside(bigint, uuid, text, text, text, bytea, text, bigint);
drop function if exists onward.leave(bigint, uuid);
drop function if exists onward.tell_freed(uuid[]);
