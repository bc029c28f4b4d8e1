//! Schemas of older versions, with runs in them: each is brought up to date, and what was there goes on.

use std::path::Path;

use onward::store::*;
use onward::{RunId, RunState};
use tokio_postgres::Client;

use super::stage::*;

/// The migrations, in order.
fn migrations() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres/migrations");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// Makes a schema as it was after so many migrations.
async fn make(stage: &Stage, raw: &Client, version: usize) {
    raw.batch_execute(&format!("create schema {}", stage.name())).await.unwrap();
    for migration in &migrations()[..version] {
        let here = migration.replace("onward.", &format!("{}.", stage.name()));
        raw.batch_execute(&here).await.unwrap();
    }
    raw.batch_execute(&format!("update schema set version = {version}")).await.unwrap();
}

/// A queued run as the first version had it, with a key, and one that ended; all that came later has
/// defaults.
async fn fill(raw: &Client) -> (RunId, RunId) {
    let (queued, ended) = (RunId::new(), RunId::new());
    let sql = format!(
        "insert into runs (id, state, attempt, wakes, crashes, priority, due_at, workflow, queue, key,
             created_at, duplicates, finished_at)
         values ({0}, 'queued', 0, 0, 0, 0, 1, '{WORKFLOW}', 'default', 'k', 1, 0, null),
             ({1}, 'completed', 1, 0, 0, 0, null, '{WORKFLOW}', 'default', null, 1, 0, 2);
         insert into keys (workflow, key, run, fingerprint) values ('{WORKFLOW}', 'k', {0}, '\\x00');
         insert into inputs (run, input) values ({0}, '{{}}'), ({1}, '{{}}');
         insert into outputs (run, output) values ({1}, '7');
         insert into records (run, seq, step, slot, kind, body, try_number, attempt, began_at, at,
             foreign_await)
         values ({1}, 1, 'a', 0, 'done', '1', 1, 1, 1, 2, false)",
        literal(queued),
        literal(ended)
    );
    raw.batch_execute(&sql).await.unwrap();
    (queued, ended)
}

/// Fails where a migration needs an empty table, a function cannot be put in the place of its older
/// form, or what an older version wrote cannot be read.
#[tokio::test]
async fn every_older_schema_is_brought_up_to_date_with_its_runs() {
    for version in 1..migrations().len() {
        let stage = Stage::new();
        let raw = stage.raw().await;
        make(&stage, &raw, version).await;
        let (queued, ended) = fill(&raw).await;
        let store = stage.open().await;
        let run = store.get(Which::Id(ended)).await.unwrap().unwrap();
        assert_eq!((run.state, run.output), (RunState::Completed, Some(json("7"))), "{version}");
        assert_eq!(store.history(ended, None, 10).await.unwrap().records.len(), 1);
        let holder = Which::Key { workflow: WORKFLOW.to_owned(), key: "k".to_owned() };
        assert_eq!(store.get(holder).await.unwrap().unwrap().id, queued, "{version}");
        let worker = joined(&store).await;
        let lease = claimed(&store, worker, 1).await;
        assert_eq!(lease.run, queued);
        let end = Settle::new(vec![done(&store, 1, "a")], End::Completed(json("8")));
        assert_eq!(store.settle(lease, end).await.unwrap(), Settled::AsSaid);
    }
}
