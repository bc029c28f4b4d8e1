//! Notes on their way to the store: lines of the run's log, its progress, its tags.
//!
//! Owns: when they are sent: a second after the first of them, and before the attempt ends. Never on
//! the way of a step: they have a write of their own, and nothing waits for it but the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Driver;
use super::send::pauses;
use crate::limits::NOTE_EVERY;
use crate::store::{self, BoxFuture, Lease, Note, Store};

/// Where the notes of an execution are.
#[derive(Default)]
pub(super) struct Noting {
    /// When those that wait are sent.
    due: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Those that are on their way.
    sent: Option<BoxFuture<'static, ()>>,
}

impl Driver {
    /// Sets the time at which notes are sent, when there are some.
    pub(super) fn watch_notes(&mut self) {
        let noting = &mut self.noting;
        if noting.due.is_none() && noting.sent.is_none() && self.board.has_notes() {
            noting.due = Some(Box::pin(tokio::time::sleep(NOTE_EVERY)));
        }
    }

    /// Whether notes wait for their time, or are on their way.
    pub(super) fn is_noting(&self) -> bool {
        self.noting.due.is_some() || self.noting.sent.is_some()
    }

    /// Sends notes when it is time, and looks whether those that were sent have arrived.
    pub(super) fn poll_notes(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(sent) = &mut self.noting.sent {
            if sent.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.noting.sent = None;
            return Poll::Ready(());
        }
        // A note may follow from a result that is not durable yet; then that goes first.
        let undurable = self.eager.is_some() || self.is_eager_in_flight();
        let Some(due) = self.noting.due.as_mut().filter(|_| !undurable) else {
            return Poll::Pending;
        };
        if due.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.noting.due = None;
        self.noting.sent = self.next_note();
        Poll::Ready(())
    }

    fn next_note(&self) -> Option<BoxFuture<'static, ()>> {
        let note = self.board.take_notes()?;
        Some(Box::pin(keep(Arc::clone(&self.setting.store), self.lease, note)))
    }

    /// Brings all that is left to the store, before the attempt ends.
    pub(super) async fn flush_notes(&mut self) {
        if let Some(sent) = self.noting.sent.take() {
            sent.await;
        }
        if let Some(sent) = self.next_note() {
            sent.await;
        }
    }
}

/// Keeps a note, again for as long as the outcome is unknown. What is refused is not worth the run.
async fn keep(store: Arc<dyn Store>, lease: Lease, note: Note) {
    let Some(notebook) = store.notebook() else {
        tracing::warn!(run = %lease.run, "this store keeps no logs, progress or changes of tags");
        return;
    };
    for pause in pauses() {
        match notebook.note(lease, note.clone()).await {
            Ok(()) | Err(store::Error::LeaseLost) => return,
            Err(store::Error::Unavailable(outage, source)) => {
                tracing::warn!(run = %lease.run, ?outage, %source, "not noted yet; again soon");
            }
            Err(error) => {
                tracing::error!(run = %lease.run, %error, "a run's notes cannot be kept");
                return;
            }
        }
        tokio::time::sleep(pause).await;
    }
}
