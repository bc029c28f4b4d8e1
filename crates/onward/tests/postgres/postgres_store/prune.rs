//! What one prune may delete at a time, and what one batch of a copy may take.

use std::time::Duration;

use onward::limits::COPY_ROWS_MAX;
use onward::store::*;

use super::stage::*;

#[tokio::test]
async fn a_prune_is_bounded_in_rows() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    for ticket in 1..=10 {
        started(&store).await;
        let lease = claimed(&store, worker, ticket).await;
        let records: Vec<_> =
            (1..=2_000).map(|seq| done(&store, seq, &format!("step {seq}"))).collect();
        store.record(lease, records.into()).await.unwrap();
        let end = End::Completed(json("1"));
        let settle = Settle { follows: Vec::new(), records: Vec::new(), end, unasked: Vec::new() };
        store.settle(lease, settle).await.unwrap();
    }
    let mut passes = Vec::new();
    loop {
        let pruned = store.prune(Prune::older_than(Duration::ZERO)).await.unwrap();
        passes.push(pruned.runs);
        if !pruned.more {
            break;
        }
    }
    // Three times two thousand records are past the limit of five thousand.
    assert_eq!(passes, [3, 3, 3, 1]);
}

#[tokio::test]
async fn a_batch_of_a_copy_is_bounded_in_rows() {
    let stage = Stage::new();
    let store = stage.open().await;
    store.start((0..3).map(|_| new_run()).collect()).await.unwrap();
    let records = format!(
        "insert into {0}.records (run, seq, step, slot, kind, body, try_number, attempt, began_at, at, foreign_await)
         select r.id, i, 'step ' || i, 0, 'done', '1', 1, 1, 1, 1, false
         from {0}.runs r, generate_series(1, {1}) i",
        stage.name(),
        COPY_ROWS_MAX / 2
    );
    stage.raw().await.batch_execute(&records).await.unwrap();
    let first = store.export(None, 10).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(store.export(Some(first[1].run.id), 10).await.unwrap().len(), 1);
}
