//! Transactions in a SQLite file, with a clock that jumps and processes that die.

use std::time::Duration;

use onward::rusqlite::Connection;
use onward::testing::{Effects, Finding, Report, TestOnward, retry_safe};
use onward::{Ctx, Failure, Workflow};

const VISIT: Workflow<(), i64> = Workflow::named("visit");
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn tables(db: &Connection) -> onward::rusqlite::Result<()> {
    db.execute_batch("create table visits (n integer not null); insert into visits values (0)")
}

/// Counts a visit on each of three days, in transactions, and says how many there were.
async fn visit(ctx: Ctx, (): ()) -> Result<i64, Failure> {
    let mut visits = 0;
    for _ in 0..3 {
        let count = ctx.sqlite_transaction("count", |db, _| {
            db.query_row("update visits set n = n + 1 returning n", (), |row| row.get(0))
        });
        visits = count.await?;
        ctx.sleep(DAY).await;
    }
    Ok(visits)
}

#[tokio::test]
async fn time_jumps_over_a_file_too() {
    let onward = TestOnward::sqlite(tables).await.unwrap();
    let begin = onward.now();
    onward.worker().serve(VISIT, visit).start().await.unwrap();
    let run = onward.start(VISIT, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    assert_eq!(onward.now(), begin + 3 * DAY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_runs_in_a_file_share_one_time() {
    let onward = TestOnward::sqlite(tables).await.unwrap();
    let begin = onward.now();
    onward.worker().serve(VISIT, visit).start().await.unwrap();
    let starts: Vec<_> = (0..20).map(|_| onward.start(VISIT, &()).into_future()).collect();
    let runs = futures::future::try_join_all(starts).await.unwrap();
    let results = futures::future::join_all(runs.iter().map(|run| run.result())).await;
    let most = results.into_iter().map(Result::unwrap).max();
    assert_eq!(most, Some(60));
    assert_eq!(onward.now(), begin + 3 * DAY);
}

#[tokio::test]
async fn an_increment_in_a_transaction_passes() {
    let report = retry_safe(VISIT, |_: Effects| visit, &()).sqlite(tables).check().await;
    assert!(report.is_safe(), "{report}");
    // Each day a transaction, the wait for the next, and its timer; the last timer ends the run.
    assert!(report.points >= 2 * 9, "{report}");
}

#[tokio::test]
async fn an_increment_beside_the_transaction_is_found() {
    let build = |effects: Effects| {
        move |ctx: Ctx, ()| {
            let effects = effects.clone();
            async move {
                let count = ctx.step("count elsewhere", async |_| {
                    effects.note("visits + 1").await;
                    Ok::<_, Failure>(())
                });
                count.await?;
                visit(ctx, ()).await
            }
        }
    };
    let report = retry_safe(VISIT, build, &()).sqlite(tables).check().await;
    let is_repeated = |finding: &Finding| matches!(finding, Finding::Repeated { .. });
    assert!(report.findings.iter().any(|found| is_repeated(&found.finding)), "{report}");
    assert_eq!(report.findings.len(), 1, "{report}");
}

fn is_refused(report: &Report, text: &str) -> bool {
    matches!(&report.findings[..], [found] if found.finding.to_string().contains(text))
}

#[tokio::test]
async fn tables_that_cannot_be_made_are_reported() {
    let broken = |db: &Connection| db.execute_batch("create tabel visits");
    let report = retry_safe(VISIT, |_: Effects| visit, &()).sqlite(broken).check().await;
    assert!(is_refused(&report, "syntax error"), "{report}");
}
