//! Transactions: what every store does with a body that it does not know. What those do that know
//! it is tested with the database that it is for.

use std::sync::Arc;
use std::time::Duration;

use super::stage::*;
use crate::store::{Place, Transact, Transacted, TransactionBody};
use crate::{Code, Json, Record};

struct Nowhere;

impl Place for Nowhere {
    fn is_wanted(&self) -> bool {
        true
    }

    fn place(&self, _result: Json) -> Option<Record> {
        panic!("a body that is not executed has no result")
    }
}

/// A body of a kind that the store does not know is refused, and nothing changes.
pub async fn transact_of_an_unknown_kind_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let before = stage.snapshot().await;
    let transact = Transact {
        lease,
        follows: Vec::new(),
        step: "pay".into(),
        body: TransactionBody::new("a transaction of no store", ()),
        place: Arc::new(Nowhere),
        time_max: Duration::from_secs(1),
    };
    match stage.store.transact(transact).await.unwrap() {
        Transacted::Failed(failure) => {
            assert!(failure.is(Code::TransactionUnsupported.as_str()), "{failure}");
        }
        other => panic!("not refused: {other:?}"),
    }
    stage.assert_unchanged(&before).await;
}
