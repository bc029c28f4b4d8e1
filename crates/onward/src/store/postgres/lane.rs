//! A committer's lane: one connection, one transaction at a time, what arrives meanwhile goes
//! together.
//!
//! Owns: the queue of a lane and the gathering of its next commit. Never waits for more to come:
//! an idle lane commits a lone write at once. Never puts two writes of one run into one commit.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Shared;
use super::line::Line;
use crate::RunId;
use crate::limits::{COMMIT_BATCH_MAX, COMMIT_BYTES_MAX};

/// A write that waits for its commit.
pub(super) trait Write: Send + 'static {
    /// The runs it is about.
    fn runs(&self) -> impl Iterator<Item = RunId>;
    /// Its payloads.
    fn bytes(&self) -> usize;
    /// Commits these together, and answers each.
    fn commit(batch: Vec<Self>, line: &mut Line) -> impl Future<Output = ()> + Send
    where
        Self: Sized;
}

/// Where writes are submitted.
#[derive(Debug)]
pub(super) struct Lane<W> {
    sender: mpsc::UnboundedSender<W>,
}

impl<W: Write> Lane<W> {
    /// Starts a lane on the runtime that this is called on.
    pub(super) fn start(shared: Arc<Shared>) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(serve(receiver, Line::new(shared)));
        (Self { sender }, task)
    }

    /// Queues a write. One that cannot be queued is dropped, which its caller notices.
    pub(super) fn submit(&self, write: W) {
        let _ = self.sender.send(write);
    }
}

/// The lanes of what runs record.
#[derive(Clone, Debug)]
pub(super) struct Lanes<W>(Arc<[Lane<W>]>);

impl<W: Write> Lanes<W> {
    pub(super) fn new(lanes: impl Iterator<Item = Lane<W>>) -> Self {
        Self(lanes.collect())
    }

    /// Queues a write in the lane of its run: always the same, so that its writes stay in order.
    pub(super) fn submit(&self, write: W) {
        let run = write.runs().next().map_or(0, RunId::as_u128);
        self.0[(run % self.0.len() as u128) as usize].submit(write);
    }
}

/// Commits until nobody can submit any more.
async fn serve<W: Write>(mut receiver: mpsc::UnboundedReceiver<W>, mut line: Line) {
    let mut queued = VecDeque::new();
    let mut arrived = Vec::new();
    loop {
        if queued.is_empty() {
            if receiver.recv_many(&mut arrived, COMMIT_BATCH_MAX).await == 0 {
                return;
            }
        } else {
            while arrived.len() < COMMIT_BATCH_MAX
                && let Ok(write) = receiver.try_recv()
            {
                arrived.push(write);
            }
        }
        queued.extend(arrived.drain(..));
        W::commit(next_batch(&mut queued), &mut line).await;
    }
}

/// The writes of the next commit, in order. A second write of a run waits for the commit after.
fn next_batch<W: Write>(queued: &mut VecDeque<W>) -> Vec<W> {
    let room = queued.len().min(COMMIT_BATCH_MAX);
    let (mut runs, mut batch) = (HashSet::with_capacity(room), Vec::with_capacity(room));
    let mut later = VecDeque::new();
    let mut bytes = 0;
    while let Some(write) = queued.pop_front() {
        let full = batch.len() == COMMIT_BATCH_MAX || bytes > COMMIT_BYTES_MAX;
        if full || write.runs().any(|run| runs.contains(&run)) {
            later.push_back(write);
            if full {
                break;
            }
            continue;
        }
        runs.extend(write.runs());
        bytes += write.bytes();
        batch.push(write);
    }
    later.append(queued);
    *queued = later;
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Of(u128, usize);

    impl Write for Of {
        fn runs(&self) -> impl Iterator<Item = RunId> {
            std::iter::once(RunId::from_u128(self.0))
        }

        fn bytes(&self) -> usize {
            self.1
        }

        async fn commit(_: Vec<Self>, _: &mut Line) {}
    }

    fn batch(queued: &mut VecDeque<Of>) -> Vec<u128> {
        next_batch(queued).iter().map(|write| write.0).collect()
    }

    #[test]
    fn a_second_write_of_a_run_waits_for_the_commit_after() {
        let mut queued: VecDeque<Of> = [1, 2, 1, 3, 1].map(|run| Of(run, 0)).into();
        assert_eq!(batch(&mut queued), [1, 2, 3]);
        assert_eq!(batch(&mut queued), [1]);
        assert_eq!(batch(&mut queued), [1]);
    }

    #[test]
    fn a_commit_is_bounded_in_rows_and_bytes() {
        let mut queued: VecDeque<Of> = (0..2_000).map(|run| Of(run, 0)).collect();
        assert_eq!(batch(&mut queued).len(), COMMIT_BATCH_MAX);
        let mut queued: VecDeque<Of> = (0..10).map(|run| Of(run, COMMIT_BYTES_MAX)).collect();
        assert_eq!(batch(&mut queued), [0, 1]);
        assert_eq!(batch(&mut queued), [2, 3]);
        assert_eq!(queued.len(), 6);
    }
}
