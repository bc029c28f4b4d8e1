//! What one prune may delete at a time.

use std::time::Duration;

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
