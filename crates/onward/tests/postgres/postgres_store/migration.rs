//! The schema: how it comes to be, who may make it, and that it is the one on paper.

use std::fmt::Write as _;
use std::path::Path;

use futures::future::join_all;
use onward::store::*;
use onward::{Code, QueueLimits, Rate};
use tokio_postgres::Client;

use super::stage::*;
use crate::database;

/// How many migrations this program has.
fn migrations() -> i32 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/migrations");
    std::fs::read_dir(folder).unwrap().count().try_into().unwrap()
}

#[tokio::test]
async fn a_fresh_database_gets_the_schema() {
    let stage = Stage::new();
    let store = stage.open().await;
    let version = stage.raw().await.query_one("select version from schema", &[]).await.unwrap();
    assert_eq!(version.get::<_, i32>(0), migrations());
    let run = started(&store).await;
    drop(store);
    let store = stage.open().await;
    assert!(store.get(Which::Id(run)).await.unwrap().is_some());
}

/// Fails where each looks whether the schema is there before it has the lock, or looks only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_create_one_schema_at_once() {
    let stage = Stage::new();
    let raw = stage.raw().await;
    // All of them find nothing, and then wait for the one lock under which it is made.
    let name = stage.name();
    let lock =
        format!("begin; select pg_advisory_xact_lock(hashtextextended('{name}.schema', 7777))");
    raw.batch_execute(&lock).await.unwrap();
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = stage.url();
            tokio::spawn(async move { PostgresStore::open(&url).await })
        })
        .collect();
    stage.waiting(8).await;
    let_go(&raw).await;
    let stores = soon(join_all(opening)).await;
    let stores: Vec<_> = stores.into_iter().map(|store| store.unwrap().unwrap()).collect();
    let rows = raw.query("select version from schema", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [migrations()]);
    let run = started(&stores[0]).await;
    assert!(stores[7].get(Which::Id(run)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_named() {
    let stage = Stage::new();
    drop(stage.open().await);
    stage.raw().await.execute("update schema set version = 99", &[]).await.unwrap();
    let error = PostgresStore::open(&stage.url()).await.unwrap_err();
    assert_eq!(error.code(), Code::SchemaTooNew);
    assert!(error.to_string().contains("99"), "{error}");
    assert!(error.to_string().contains(&format!("knows {}.", migrations())), "{error}");
}

/// Fails where a name is in the search path, in a function's body or in a channel that two schemas
/// share.
#[tokio::test]
async fn two_schemas_in_one_database_do_not_see_each_other() {
    let (one, other) = (Stage::new(), Stage::new());
    let (here, there) = (one.open().await, other.open().await);
    let key = || keyed_run("k");
    let (mine, theirs) = (start(&here, key()).await, start(&there, key()).await);
    assert_ne!(mine, theirs);
    assert!(there.get(Which::Id(mine)).await.unwrap().is_none());
    let worker = joined(&here).await;
    let claims = here.claim(claim_of(worker, 1)).await.unwrap();
    assert_eq!(claims.runs.iter().map(|claimed| claimed.lease.run).collect::<Vec<_>>(), [mine]);
    let stranger = there.claim(claim_of(worker, 1)).await.unwrap_err();
    assert!(matches!(stranger, Error::LeaseLost), "{stranger}");
}

/// A role that may use a schema, and nothing else.
struct Role(String);

impl Role {
    async fn new(raw: &Client) -> Self {
        let role = Role(format!("test_{:032x}", onward::RunId::new().as_u128()));
        raw.batch_execute(&format!("create role {} login", role.0)).await.unwrap();
        role
    }

    fn url(&self, stage: &Stage) -> String {
        let (scheme, rest) = database::url().split_once("://").map(owned).unwrap();
        let host = rest.rsplit_once('@').map_or(rest.clone(), |(_, host)| host.to_owned());
        with(&format!("{scheme}://{}@{host}", self.0), &format!("schema={}", stage.name()))
    }

    async fn drop(self, raw: &Client) {
        let sql = format!("drop owned by {0}; drop role {0}", self.0);
        raw.batch_execute(&sql).await.unwrap();
    }
}

fn owned((one, other): (&str, &str)) -> (String, String) {
    (one.to_owned(), other.to_owned())
}

#[tokio::test]
async fn a_role_that_may_create_nothing_can_use_a_schema_that_is_there() {
    let stage = Stage::new();
    drop(stage.open().await);
    let raw = stage.raw().await;
    let role = Role::new(&raw).await;
    let (name, user) = (stage.name(), &role.0);
    let grant = format!(
        "grant usage on schema {name} to {user};
         grant select, insert, update, delete on all tables in schema {name} to {user}"
    );
    raw.batch_execute(&grant).await.unwrap();
    let store = PostgresStore::open(&role.url(&stage)).await.unwrap();
    let worker = joined(&store).await;
    let run = start(&store, keyed_run("k")).await;
    assert_eq!(start(&store, keyed_run("k")).await, run);
    let lease = claimed(&store, worker, 1).await;
    store.record(lease, vec![done(&store, 1, "a")].into()).await.unwrap();
    store.settle(lease, Settle::new(vec![], End::Completed(json("1")))).await.unwrap();
    store.sweep(sweep_of(worker)).await.unwrap();
    assert_eq!(store.prune(Prune::older_than(Default::default())).await.unwrap().runs, 1);
    drop(store);
    role.drop(&raw).await;
}

/// Fails where the schema is created if it is not there: Postgres asks for the right to create one
/// before it looks whether it is.
#[tokio::test]
async fn a_role_may_fill_an_empty_schema_that_it_was_given() {
    let stage = Stage::new();
    let raw = stage.raw().await;
    let role = Role::new(&raw).await;
    let (name, user) = (stage.name(), &role.0);
    raw.batch_execute(&format!("create schema {name} authorization {user}")).await.unwrap();
    let store = PostgresStore::open(&role.url(&stage)).await.unwrap();
    started(&store).await;
    drop(store);
    role.drop(&raw).await;
}

/// A role that may not make the schema is told what it lacks.
#[tokio::test]
async fn a_role_that_may_not_make_the_schema_is_told_so() {
    let stage = Stage::new();
    let raw = stage.raw().await;
    let role = Role::new(&raw).await;
    let error = PostgresStore::open(&role.url(&stage)).await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable);
    assert!(error.to_string().contains("permission denied for database"), "{error}");
    role.drop(&raw).await;
}

#[tokio::test]
async fn a_schema_that_is_missing_or_old_is_refused_by_who_may_not_change_it() {
    let stage = Stage::new();
    let url = with(&stage.url(), "create=false");
    let refused = async || PostgresStore::open(&url).await.unwrap_err().code();
    assert_eq!(refused().await, Code::SchemaMissing);
    drop(stage.open().await);
    drop(PostgresStore::open(&url).await.unwrap());
    stage.raw().await.execute("update schema set version = 1", &[]).await.unwrap();
    assert_eq!(refused().await, Code::SchemaTooOld);
}

#[tokio::test]
async fn the_schema_is_the_one_on_paper() {
    let stage = Stage::new();
    drop(stage.open().await);
    let paper = paper(&stage.raw().await).await.replace(&format!("{}.", stage.name()), "onward.");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/schema.sql");
    if std::env::var_os("ONWARD_WRITE_GOLDEN").is_some() {
        std::fs::write(&golden, &paper).unwrap();
    }
    let golden = std::fs::read_to_string(golden).unwrap();
    let lines = paper.lines().zip(golden.lines());
    for (number, (has, says)) in lines.enumerate() {
        assert_eq!(has, says, "line {}; ONWARD_WRITE_GOLDEN=1 writes it anew", number + 1);
    }
    assert_eq!(paper.len(), golden.len());
}

/// What the schema has, from the catalog: each kind of thing by name, columns in their order.
async fn paper(raw: &Client) -> String {
    let mut paper = String::from(
        "-- What a database has after all migrations, as its catalog tells it. Written by a test, \
         with\n-- ONWARD_WRITE_GOLDEN=1.\n",
    );
    for (kind, name) in relations(raw).await {
        let of = format!("current_schema() || '.{name}'");
        let columns = format!(
            "select a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                 || coalesce(' collate \"' || case when a.attcollation <> t.typcollation
                     then l.collname end || '\"', '')
                 || case when a.attnotnull then ' not null' else '' end
                 || case when a.attidentity = 'a' then ' generated always as identity' else '' end
             from pg_attribute a
             join pg_type t on t.oid = a.atttypid
             left join pg_collation l on l.oid = a.attcollation
             where a.attrelid = ({of})::regclass and a.attnum > 0 and not a.attisdropped
             order by a.attnum"
        );
        let options = format!(
            "select coalesce(' with (' || array_to_string(reloptions, ', ') || ')', '')
             from pg_class where oid = ({of})::regclass"
        );
        let options = texts(raw, &options).await.concat();
        let columns = texts(raw, &columns).await.join(",\n    ");
        write!(paper, "\n{kind} {name} (\n    {columns}\n){options};\n").unwrap();
        let indexes = format!(
            "select pg_get_indexdef(indexrelid) from pg_index
             where indrelid = ({of})::regclass order by indexrelid::regclass::text"
        );
        for index in texts(raw, &indexes).await {
            writeln!(paper, "{index};").unwrap();
        }
    }
    let functions = "select 'function ' || p.proname || '('
             || pg_get_function_arguments(p.oid) || ') returns ' || pg_get_function_result(p.oid)
         from pg_proc p
         where p.pronamespace = current_schema()::regnamespace
         order by p.proname";
    for function in texts(raw, functions).await {
        write!(paper, "\n{function};\n").unwrap();
    }
    paper
}

async fn relations(raw: &Client) -> Vec<(String, String)> {
    let sql = "select case relkind when 'r' then 'table' else 'view' end, relname::text
               from pg_class
               where relnamespace = current_schema()::regnamespace and relkind in ('r', 'v')
               order by 1, 2";
    let rows = raw.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Fails where a function forbids plans and leaves Postgres to compile those that are left: it takes
/// what is forbidden for very costly, and compiles whatever has to do it all the same.
#[tokio::test]
async fn what_forbids_a_plan_forbids_to_compile_it() {
    let stage = Stage::new();
    drop(stage.open().await);
    let raw = stage.raw().await;
    let forbids = |wanted: &str| {
        format!(
            "select proname::text from pg_proc p
            where pronamespace = '{}'::regnamespace and 'enable_seqscan=off' = any (proconfig)
                {wanted}
            order by 1",
            stage.name()
        )
    };
    let all = texts(&raw, &forbids("")).await;
    assert!(all.contains(&"sweep".to_owned()) && all.contains(&"settle".to_owned()), "{all:?}");
    let compiled = texts(&raw, &forbids("and not 'jit=off' = any (proconfig)")).await;
    assert_eq!(compiled, Vec::<String>::new());
}

/// Functions that are put into the statements which call them, and could not be if they had settings: each
/// call would cost a claim or a write far more than what it does. Their callers say where names are looked for.
const INLINED: [&str; 6] =
    ["claim_laneless", "claim_pages", "claim_ranges", "claim_walk", "fence_key", "now_ms"];

/// Fails where a function finds what the caller's session puts before Postgres' own.
#[tokio::test]
async fn functions_look_for_names_where_postgres_has_its_own() {
    let stage = Stage::new();
    drop(stage.open().await);
    let sql = "select distinct proname::text from pg_proc
               where pronamespace = current_schema()::regnamespace
                   and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)
               order by 1";
    assert_eq!(texts(&stage.raw().await, sql).await, INLINED);
}

/// Without one, a server that replicates row by row refuses their updates.
#[tokio::test]
async fn every_table_has_a_primary_key() {
    let stage = Stage::new();
    drop(stage.open().await);
    let sql = "select relname::text from pg_class r
               where relnamespace = current_schema()::regnamespace and relkind = 'r'
                   and not exists (
                       select from pg_constraint where conrelid = r.oid and contype = 'p'
                   )";
    assert_eq!(texts(&stage.raw().await, sql).await, Vec::<String>::new());
}

/// Some servers keep other names than Postgres gives: nothing of ours goes by the name of a constraint.
#[tokio::test]
async fn no_constraint_is_known_by_its_name() {
    let stage = Stage::new();
    let store = stage.open().await;
    let raw = stage.raw().await;
    let renames = "select format('alter table %s rename constraint %I to c%s', conrelid::regclass,
                       conname, oid)
                   from pg_constraint
                   where connamespace = current_schema()::regnamespace and contype in ('p', 'u')";
    for rename in texts(&raw, renames).await {
        raw.batch_execute(&rename).await.unwrap();
    }
    let rate = Some(Rate { count: 9, period_ms: 60_000 });
    let limits = QueueLimits { rate, ..QueueLimits::default() };
    let put = PutQueue { name: "default".to_owned(), limits };
    store.queues().unwrap().put_queue(put).await.unwrap();
    let worker = joined(&store).await;
    for ticket in 1..3 {
        start(&store, keyed_run("k")).await;
        let lease = claimed(&store, worker, ticket).await;
        let write = || Settle::new(vec![done(&store, 1, "a")], End::Completed(json("1")));
        assert_eq!(store.settle(lease, write()).await.unwrap(), Settled::AsSaid);
        // It finds its rows there.
        assert_eq!(store.settle(lease, write()).await.unwrap(), Settled::AsSaid);
        let deletes = store.deletes().unwrap();
        deletes.release_run_key(lease.run).await.unwrap();
    }
    started(&store).await;
    claimed(&store, worker, 3).await;
    store.leave(worker).await.unwrap();
}

async fn texts(raw: &Client, sql: &str) -> Vec<String> {
    raw.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Fails where the channel of notifications gets a longer name than Postgres takes.
#[tokio::test]
async fn a_schema_may_have_the_longest_name_that_is_taken() {
    let name = format!("{:a<56}", database::Schema::new().0.clone());
    let schema = database::Schema(name, None);
    let store = PostgresStore::open(&schema.url()).await.unwrap();
    let worker = joined(&store).await;
    started(&store).await;
    claimed(&store, worker, 1).await;
    // It tells the others, in its transaction, what it gives back.
    store.leave(worker).await.unwrap();
}
