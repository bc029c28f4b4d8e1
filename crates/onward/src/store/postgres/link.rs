//! The connection for lone writes, on the runtime of their callers.
//!
//! Owns: how it is made and what is prepared on it, and that it is driven by whoever comes first: the
//! caller that writes, or the task that waits for the answer. Never made through a pooler, where
//! nothing can be prepared and a lone write takes longer anyway.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::{self, Handle};
use tokio_postgres::{Client, Row, Statement};

use super::Shared;
use super::batch::{RECORD, SETTLE};
use super::connect::Undriven;
use super::direct::is_direct;
use super::fault::Fault;
use super::line::{UnderLease, rows_prepared};
use super::nudge::Nudge;
use super::tx::{Param, limited};

/// One connection, and the task that waits for its answers.
pub(super) struct Link {
    wire: Wire,
    /// Nothing where it has come to its end.
    connection: Option<Undriven>,
    runtime: runtime::Id,
    /// Woken where the connection has something to send or to hear.
    moved: Arc<Nudge>,
    /// Woken where the write has an answer or has waited too long.
    answered: Arc<Nudge>,
}

impl Link {
    /// Connects on the runtime that this is called on; nothing where that is of no use.
    pub(super) async fn connect(shared: Arc<Shared>, is_off: Arc<AtomicBool>) -> Option<Self> {
        let connected = shared.connector.undriven().await;
        let (client, connection) = connected.inspect_err(not_made).ok()?;
        let mut connection = Some(connection);
        let mut preparing = pin!(Wire::prepare(shared, client, is_off));
        let (wire, waker) = std::future::poll_fn(|cx| {
            // What the first asks for, the second sends.
            let wire = preparing.as_mut().poll(cx);
            drive(&mut connection, cx);
            wire.map(|wire| (wire, cx.waker().clone()))
        })
        .await;
        let wire = wire.inspect_err(not_made).ok()??;
        let (moved, answered) = (Nudge::of(waker.clone()), Nudge::of(waker));
        let runtime = Handle::current().id();
        Some(Self { wire, connection, runtime, moved, answered })
    }

    /// Where a write is executed.
    pub(super) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// Wakes the task that waits for answers.
    pub(super) fn wake(&self) {
        self.moved.wake_task();
    }

    /// Lets a write be sent and answered: `poll` polls it, after what has arrived was taken, and again
    /// after what it asked for was sent. The task is woken as soon as there is more.
    pub(super) fn advance(&mut self, mut poll: impl FnMut(&mut Context<'_>)) {
        let (moved, answered) = (self.moved.hold(), self.answered.hold());
        // A runtime that was busy hears of an answer and of the end of its time limit at once.
        moved.look(|cx| drive(&mut self.connection, cx));
        answered.look(&mut poll);
        moved.look(|cx| drive(&mut self.connection, cx));
        answered.look(&mut poll);
        if self.wire.0.is_lost.load(Ordering::Acquire) {
            self.connection = None;
        }
    }

    /// Whether it can take another write.
    fn is_open(&self) -> bool {
        self.connection.is_some() && !self.wire.0.is_off.load(Ordering::Acquire)
    }

    /// Whether it is of no more use, to a write that is on its way either.
    pub(super) fn is_over(&self, is_writing: bool) -> bool {
        self.connection.is_none() || !is_writing && !self.is_open()
    }

    /// Whether it can be used, and is driven by the caller's own runtime: one must not wait for another.
    pub(super) fn is_here(&self) -> bool {
        self.is_open() && Handle::try_current().is_ok_and(|here| here.id() == self.runtime)
    }
}

/// Lets a connection send and hear; nothing is left of one that has come to its end.
fn drive(connection: &mut Option<Undriven>, cx: &mut Context<'_>) {
    // What is sent must not wait for the budget of polls that its caller has used up.
    let driving = tokio::task::unconstrained(std::future::poll_fn(|cx| {
        while let Some(open) = connection {
            match open(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(end) => {
                    tracing::debug!(?end, "the connection for lone writes ended");
                    *connection = None;
                }
            }
        }
        Poll::Ready(())
    }));
    let _ = pin!(driving).poll(cx);
}

fn not_made(fault: &Fault) {
    tracing::debug!(?fault, "there is no connection for lone writes; the lanes take them");
}

/// Executes what was prepared on the connection.
#[derive(Clone)]
pub(super) struct Wire(Arc<Wired>);

struct Wired {
    shared: Arc<Shared>,
    client: Client,
    prepared: [(&'static str, Statement); 2],
    /// Whether an answer did not come, after which the connection is given up.
    is_lost: AtomicBool,
    /// Whether there is something between that makes such a connection useless.
    is_off: Arc<AtomicBool>,
}

impl Wire {
    /// Prepares what stands on a lease; nothing where the server itself is not at the other end.
    async fn prepare(
        shared: Arc<Shared>,
        client: Client,
        is_off: Arc<AtomicBool>,
    ) -> Result<Option<Self>, Fault> {
        if !is_direct(&shared, &client).await? {
            is_off.store(true, Ordering::Release);
            return Ok(None);
        }
        let prepare = async |sql| {
            let text = shared.sql.text(sql);
            Ok::<_, Fault>((sql, limited(&shared, client.prepare(&text)).await?))
        };
        let prepared = [prepare(RECORD).await?, prepare(SETTLE).await?];
        let is_lost = AtomicBool::new(false);
        Ok(Some(Self(Arc::new(Wired { shared, client, prepared, is_lost, is_off }))))
    }
}

impl UnderLease for Wire {
    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    async fn rows_under_lease(
        &mut self,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let Wired { shared, client, prepared, is_lost, is_off } = &*self.0;
        let Some((_, statement)) = prepared.iter().find(|(text, _)| *text == sql) else {
            return Err(Fault::OneByOne);
        };
        match limited(shared, rows_prepared(client, statement, params)).await {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => {
                is_off.store(true, Ordering::Release);
                Err(Fault::OneByOne)
            }
            // Nothing was committed either: a lane makes it again.
            Err(Fault::Again(_)) => Err(Fault::OneByOne),
            Err(fault) => {
                is_lost.fetch_or(matches!(fault, Fault::Outage(..)), Ordering::AcqRel);
                Err(fault)
            }
        }
    }
}
