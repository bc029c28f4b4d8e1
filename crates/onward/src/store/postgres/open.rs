//! Opening a database: the schema and its migrations.
//!
//! Owns: the schema's version. Never opens one that a newer program wrote, and never a database
//! that would lose an answered commit. Many processes may open at once: one migrates, the others
//! wait for it.

use std::sync::Arc;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::Shared;
use super::fault::Fault;
use super::script::statements;
use super::tx::Session;
use crate::store::Error as StoreError;
use crate::{Clock as _, Code, Error, SystemClock, Timestamp};

/// The schema's migrations in order; the database says how many it has had.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_signals.sql"),
    include_str!("migrations/0003_step_keys.sql"),
    include_str!("migrations/0004_schedules.sql"),
    include_str!("migrations/0005_steering.sql"),
    include_str!("migrations/0006_claims.sql"),
    include_str!("migrations/0007_queues.sql"),
    include_str!("migrations/0008_audit.sql"),
    include_str!("migrations/0009_laneless.sql"),
    include_str!("migrations/0010_gathered.sql"),
    include_str!("migrations/0011_schedule_lanes.sql"),
    include_str!("migrations/0012_places.sql"),
    include_str!("migrations/0013_start_times.sql"),
    include_str!("migrations/0014_views.sql"),
    include_str!("migrations/0015_uncompiled.sql"),
    include_str!("migrations/0016_kept_ends.sql"),
    include_str!("migrations/0017_late.sql"),
    include_str!("migrations/0018_server.sql"),
    include_str!("migrations/0019_keyed.sql"),
    include_str!("migrations/0020_grants_ahead.sql"),
    include_str!("migrations/0021_signal_bytes.sql"),
];

/// The oldest server that the store's statements are for, as a server numbers its version.
const SERVER_MIN: u32 = 140_000;

/// The store's functions, written anew with every migration. Those that forbid a plan also forbid
/// to compile it: what is forbidden counts as costly beyond measure, and compiling costs a sweep a
/// quarter of a second of the server's time.
const FUNCTIONS: &[&str] = &[
    include_str!("sql/now.sql"),
    include_str!("sql/json.sql"),
    include_str!("sql/fence.sql"),
    include_str!("sql/server.sql"),
    include_str!("sql/wake.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/claim_lanes.sql"),
    include_str!("sql/claim_limited.sql"),
    include_str!("sql/record.sql"),
    include_str!("sql/signal.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/start.sql"),
    include_str!("sql/start_met.sql"),
    include_str!("sql/start_sql.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/leave.sql"),
    include_str!("sql/transact.sql"),
    include_str!("sql/prune.sql"),
];

/// Checks the database, and brings its schema up to date.
pub(super) async fn open(shared: &Arc<Shared>, create: bool) -> Result<(), Error> {
    let failed = |fault: Fault| Error::from(StoreError::from(fault));
    check_settings(shared).await?;
    let version = version(shared).await.map_err(failed)?;
    check_version(version)?;
    if version < MIGRATIONS.len() && !create {
        let code = if version == 0 { Code::SchemaMissing } else { Code::SchemaTooOld };
        let about = format!("schema {:?}, version {version}", shared.sql.schema());
        return Err(Error::new(code).about(about));
    }
    if version < MIGRATIONS.len() {
        migrate(shared, version == 0).await?;
    }
    set_clock(shared).await.map_err(failed)
}

/// What the server is asked before anything else, in one round trip.
const SETTINGS: &str = "select current_setting('server_version_num'), \
    current_setting('synchronous_commit'), current_setting('fsync'), \
    current_setting('default_transaction_isolation')";

/// An answered commit must survive a crash of the server, and the fence must not see old rows.
async fn check_settings(shared: &Arc<Shared>) -> Result<(), Error> {
    let failed = |fault: Fault| Error::from(StoreError::from(fault));
    let mut session = Session::open(shared).await.map_err(failed)?;
    let row = session.first(SETTINGS, &[]).await.map_err(failed)?;
    let row = row.ok_or_else(|| failed(Fault::data("settings without an answer")))?;
    let setting = |column: usize| -> Result<String, Error> {
        row.try_get(column).map_err(|error| failed(Fault::data(error)))
    };
    check_server(&setting(0)?)?;
    for (column, name) in [(1, "synchronous_commit"), (2, "fsync")] {
        if setting(column)? == "off" {
            return Err(Error::new(Code::StoreNotDurable).about(format!("{name} is off")));
        }
    }
    let level = setting(3)?;
    if level != "read committed" {
        let about = format!(
            "default_transaction_isolation is {level:?}; set it to 'read committed' for this role \
             or database"
        );
        return Err(Error::new(Code::InvalidOption).about(about));
    }
    Ok(())
}

/// Refuses a server that is too old. One that does not say its version as Postgres does is given a try.
fn check_server(version: &str) -> Result<(), Error> {
    match version.parse::<u32>() {
        Ok(version) if version < SERVER_MIN => {
            let (is, wanted) = (version / 10_000, SERVER_MIN / 10_000);
            let about =
                format!("the server is Postgres {is}, and the store needs {wanted} or later");
            Err(Error::new(Code::InvalidOption).about(about))
        }
        _ => Ok(()),
    }
}

async fn version(shared: &Arc<Shared>) -> Result<usize, Fault> {
    let mut session = Session::open(shared).await?;
    let there = session.first(include_str!("sql/schema_there.sql"), &[]).await?;
    if !there.is_some_and(|row| row.try_get(0).unwrap_or(false)) {
        return Ok(0);
    }
    let version = session.first(include_str!("sql/schema_version.sql"), &[]).await?;
    let version: i32 = match version {
        Some(row) => row.try_get(0).map_err(Fault::data)?,
        None => 0,
    };
    usize::try_from(version).map_err(Fault::data)
}

fn check_version(version: usize) -> Result<(), Error> {
    if version <= MIGRATIONS.len() {
        return Ok(());
    }
    let known = MIGRATIONS.len();
    let about = format!("the schema has version {version}, this program knows {known}");
    Err(Error::new(Code::SchemaTooNew).about(about))
}

async fn migrate(shared: &Arc<Shared>, fresh: bool) -> Result<(), Error> {
    let failed = |fault: Fault| Error::from(StoreError::from(fault));
    let conn = shared.connector.connect().await.map_err(failed)?;
    let text = |sql: &'static str| shared.sql.text(sql);
    let work = async {
        conn.batch_execute("begin").await?;
        conn.query_typed(&text(include_str!("sql/schema_lock.sql")), &[]).await?;
        if fresh {
            create_schema(&conn, shared.sql.schema()).await?;
        }
        // Somebody else may have migrated while this one waited for the lock.
        let there = conn.query_typed(&text(include_str!("sql/schema_there.sql")), &[]).await?;
        let mut version: i32 = 0;
        if there.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
            let sql = text(include_str!("sql/schema_version.sql"));
            let rows = conn.query_typed(&sql, &[]).await?;
            version = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        }
        let had = usize::try_from(version).unwrap_or(0);
        if had >= MIGRATIONS.len() {
            conn.batch_execute("commit").await?;
            return Ok(had);
        }
        for script in MIGRATIONS[had..].iter().chain(FUNCTIONS) {
            for statement in statements(&text(script)) {
                conn.batch_execute(statement).await?;
            }
        }
        let version = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
        let sql = text(include_str!("sql/schema_set.sql"));
        conn.execute_typed(&sql, &[(&version, Type::INT4)]).await?;
        conn.batch_execute("commit").await?;
        Ok::<usize, tokio_postgres::Error>(MIGRATIONS.len())
    };
    let version = work.await.map_err(|error| failed(Fault::from(error)))?;
    check_version(version)
}

/// Creates the schema if it is not there. Postgres' own `if not exists` asks for the right to
/// create one before it looks, and a role may have been given an empty one.
async fn create_schema(conn: &Client, schema: &str) -> Result<(), tokio_postgres::Error> {
    let sql = "select to_regnamespace($1) is not null";
    let there = conn.query_typed(sql, &[(&schema, Type::TEXT)]).await?;
    if there.first().is_some_and(|row| row.try_get(0).unwrap_or(false)) {
        return Ok(());
    }
    conn.batch_execute(&format!("create schema {schema}")).await
}

/// Measures how far the machine's clock is from the database's.
async fn set_clock(shared: &Arc<Shared>) -> Result<(), Fault> {
    let mut session = Session::open(shared).await?;
    let asked = SystemClock.now();
    let given: Option<i64> = None;
    let row = session.first(include_str!("sql/time.sql"), &[(&given, Type::INT8)]).await?;
    if let Some(row) = row {
        let said = Timestamp::from_millis(row.try_get(0).map_err(Fault::data)?);
        shared.clock.heard(said, asked);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused_and_named() {
        let said = check_server("130011").unwrap_err().to_string();
        assert!(said.contains("Postgres 13, and the store needs 14"), "{said}");
        for version in ["140000", "180001", "", "v24.1"] {
            assert!(check_server(version).is_ok(), "{version}");
        }
    }
}
