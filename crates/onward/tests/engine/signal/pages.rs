//! Inboxes that are larger than one look at them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onward::limits::{INBOX_BYTES_MAX, PAYLOAD_BYTES_MAX};
use onward::store::InboxRest;
use onward::{Code, Ctx, Failure, Onward, RunState, Waits, Workflow};
use tokio::sync::{Notify, Semaphore};

use crate::stores::{on_each_store, until_state};

const COLLECT: Workflow<(), Vec<char>> = Workflow::named("collect");
const PART: Workflow<u32, String> = Workflow::named("part");
const WHOLE: Workflow<(), usize> = Workflow::named("whole");

/// A payload of nearly the full size.
fn large(letter: char) -> String {
    letter.to_string().repeat(PAYLOAD_BYTES_MAX - 200 * 1024)
}

const LETTERS: [char; 6] = ['a', 'b', 'c', 'd', 'e', 'f'];

/// What came before the run was claimed, and while it waits, comes whole and in order.
#[tokio::test]
async fn signals_larger_than_a_page_come_whole_and_in_order() {
    on_each_store(async |onward| {
        let run = onward.start(COLLECT, &()).await.unwrap();
        for letter in LETTERS {
            run.signal("part", &large(letter)).await.unwrap();
        }
        let inbox = onward.store().inbox(run.id(), 0).await.unwrap();
        assert_eq!(inbox.rest, InboxRest::More);
        assert_eq!(run.signals_untaken().await.unwrap().len(), LETTERS.len());
        let worker = onward.worker().linger(Duration::ZERO).serve(COLLECT, async |ctx: Ctx, ()| {
            let mut letters = Vec::new();
            for _ in LETTERS {
                let part: String = ctx.signal("part").await?;
                letters.push(part.chars().next().unwrap());
            }
            Ok(letters)
        });
        let worker = worker.start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), LETTERS);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The end of a child that is not in the first page does not make the child begin again, even if the child was
/// deleted since.
#[tokio::test]
async fn ends_of_children_larger_than_a_page_are_all_known() {
    on_each_store(async |onward| {
        let executed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&executed);
        let gate = Arc::new(Semaphore::new(0));
        let opened = Arc::clone(&gate);
        let served = |onward: &Onward| {
            let (counted, opened) = (Arc::clone(&counted), Arc::clone(&opened));
            let worker = onward.worker().linger(Duration::ZERO);
            let worker = worker.serve(PART, move |ctx: Ctx, _: u32| {
                let (counted, opened) = (Arc::clone(&counted), Arc::clone(&opened));
                async move {
                    ctx.step("make", async |_| {
                        let _permit = opened.acquire().await;
                        counted.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Failure>(())
                    })
                    .await?;
                    Ok(large('x'))
                }
            });
            worker.serve(WHOLE, async |ctx: Ctx, ()| {
                let children = (0..6).map(|number| ctx.start(PART, &number).result());
                let parts = futures::future::try_join_all(children).await?;
                Ok(parts.iter().map(String::len).sum())
            })
        };
        let run = onward.start(WHOLE, &()).await.unwrap();
        let worker = served(&onward).start().await.unwrap();
        let started = async || {
            let query = onward::Query { limit: 50, ..onward::Query::default() };
            let runs = onward.list(query).await.unwrap().runs;
            runs.into_iter().filter(|run| run.workflow == "part").collect::<Vec<_>>()
        };
        while started().await.len() < 6 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        run.pause().await.unwrap();
        gate.add_permits(6);
        while started().await.iter().any(|child| child.state != RunState::Completed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for child in started().await {
            onward.run(child.id).delete().await.unwrap();
        }
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 6 * large('x').len());
        assert_eq!(executed.load(Ordering::SeqCst), 6);
        worker.shutdown().await.unwrap();
        const { assert!(6 * (PAYLOAD_BYTES_MAX - 200 * 1024) > INBOX_BYTES_MAX) };
    })
    .await;
}

#[tokio::test]
async fn a_signal_that_cannot_be_read_sets_a_waiting_run_aside() {
    an_unreadable_signal(None).await;
}

/// The signal may have come in time, so the wait does not time out.
#[tokio::test]
async fn a_signal_that_cannot_be_read_sets_a_run_aside_whose_wait_is_over() {
    an_unreadable_signal(Some(Duration::ZERO)).await;
}

/// A run that waits for what comes behind a signal that cannot be read is set aside, and does not wait for ever.
async fn an_unreadable_signal(timeout: Option<Duration>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onward.db");
    let onward = Onward::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let go_on = Arc::new(Notify::new());
    let told = Arc::clone(&go_on);
    let worker = onward.worker().serve(COLLECT, move |ctx: Ctx, ()| {
        let told = Arc::clone(&told);
        async move {
            ctx.step("hold", async |_| {
                told.notified().await;
                Ok::<_, Failure>(())
            })
            .await?;
            match timeout {
                None => Ok(vec![ctx.signal("letter").await?]),
                Some(timeout) => {
                    Ok(ctx.signal("letter").timeout(timeout).await?.into_iter().collect())
                }
            }
        }
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(COLLECT, &()).await.unwrap();
    until_state(&run, RunState::Running).await;
    run.signal("letter", &'a').await.unwrap();
    let damage = "update onward_signals set fingerprint = x'01'";
    rusqlite::Connection::open(&path).unwrap().execute(damage, []).unwrap();
    go_on.notify_one();
    until_state(&run, RunState::Waiting).await;
    let waits_for = run.status().await.unwrap().waits_for;
    let Some(Waits::Stuck { code, detail }) = waits_for else { panic!("{waits_for:?}") };
    assert_eq!(code, Code::CorruptRecord.as_str());
    assert!(detail.starts_with("a signal cannot be read"), "{detail}");
    worker.shutdown().await.unwrap();
}
