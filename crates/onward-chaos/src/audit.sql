-- Keeps every change of a run, a record and a worker, with the order in which they were committed.
-- Whoever commits takes one lock last and holds it until it is done, so the numbers of `commits`
-- are in that order.
create schema audit;

create table audit.changes (
    no bigserial primary key,
    tx bigint not null default txid_current(),
    what text not null,
    run uuid,
    worker uuid,
    attempt integer,
    step text,
    try_number integer,
    detail text
);

create table audit.commits (
    tx bigint primary key,
    no bigint not null,
    at_us bigint not null
);

create sequence audit.commit_no;

create function audit.commit() returns trigger
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7177001);
    if not exists (select from audit.commits where tx = txid_current()) then
        insert into audit.commits (tx, no, at_us)
        values (
            txid_current(),
            nextval('audit.commit_no'),
            (extract(epoch from clock_timestamp()) * 1000000)::bigint
        );
    end if;
    return null;
end
$$;

create constraint trigger audit_commit
after insert on audit.changes
deferrable initially deferred
for each row execute function audit.commit();

-- A run that is started, claimed, or no longer held. `detail` is the state that it is left in, and
-- for one that waits what it waits for.
create function audit.run() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into audit.changes (what, run, detail) values ('started', new.id, new.key);
    end if;
    if new.state = 'running' and (tg_op = 'INSERT' or new.attempt <> old.attempt) then
        insert into audit.changes (what, run, worker, attempt)
        values ('claimed', new.id, new.worker, new.attempt);
    elsif tg_op = 'UPDATE' and old.state = 'running' and new.state <> 'running' then
        insert into audit.changes (what, run, worker, attempt, detail)
        values (
            'left', new.id, old.worker, old.attempt,
            case when new.state = 'waiting' then 'waiting:' || (new.waits_for::json ->> 'for')
                else new.state end
        );
    elsif tg_op = 'UPDATE' and (new.state, new.worker) is distinct from (old.state, old.worker) then
        insert into audit.changes (what, run, worker, attempt, detail)
        values ('moved', new.id, new.worker, new.attempt, old.state || ' to ' || new.state);
    end if;
    return null;
end
$$;

create trigger audit_run
after insert or update on onward.runs
for each row execute function audit.run();

create function audit.record() returns trigger
language plpgsql as $$
begin
    insert into audit.changes (what, run, attempt, step, try_number, detail)
    values ('recorded', new.run, new.attempt, new.step, new.try_number, new.kind);
    return null;
end
$$;

create trigger audit_record
after insert on onward.records
for each row execute function audit.record();

create function audit.worker() returns trigger
language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into audit.changes (what, worker, detail) values ('joined', new.id, new.place);
    elsif old.lost_at is null and new.lost_at is not null then
        insert into audit.changes (what, worker) values ('lost', new.id);
    elsif old.lost_at is not null and new.lost_at is null then
        insert into audit.changes (what, worker) values ('revived', new.id);
    end if;
    return null;
end
$$;

create trigger audit_worker
after insert or update on onward.workers
for each row execute function audit.worker();
