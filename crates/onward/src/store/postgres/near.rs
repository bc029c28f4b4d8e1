//! A lone write, sent by its caller.
//!
//! While nothing else is on its way, there is nothing to gather, and a write need not go to the store's
//! thread and come back from it: each of the two wakes a thread, which together takes about half as long
//! as a commit. Its caller sends it, on a connection that the caller's own runtime drives.
//!
//! Owns: which write may go so, and the order of a run's writes beside the lanes. Never lets what is
//! sent wait for the user's runtime, which bodies may keep busy for minutes: it is on the socket when
//! the verb returns, and only the answer waits, with what its run writes after it. Never makes a write
//! again, and never has two; the lanes do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::Shared;
use super::batch::{self, RunWrite};
use super::lane::{Lanes, Write};
use super::link::Link;
use crate::RunId;
use crate::store::BoxFuture;

/// Lone writes before there is a connection for them: a program that writes little does without.
const NEAR_AFTER: u32 = 8;

/// The pause before a connection that was lost, or could not be made, is made again: a server that is
/// down is not asked more often than that. Meanwhile the lanes take everything.
const PAUSE: Duration = Duration::from_secs(1);

/// The largest write that is sent by its caller, so that the kernel has all of it at once: half of the
/// 16 KiB that Linux gives a socket at first.
const NEAR_BYTES_MAX: usize = 8 * 1024;

/// The most records in it: what stands around a payload has some 200 bytes.
const NEAR_RECORDS_MAX: usize = 16;

/// Where lone writes are offered.
pub(super) struct Near {
    shared: Arc<Shared>,
    lanes: Lanes<RunWrite>,
    on_way: Arc<AtomicUsize>,
    /// Whether there is something between, such as a pooler, that makes a connection useless.
    is_off: Arc<AtomicBool>,
    /// Whether any write is on its way here, so that the others need not lock the rest to know.
    is_writing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// How many lone writes the lanes have had, as far as that matters.
    lone: u32,
    /// When the task that makes a connection and serves it last began or ended.
    tried: Option<Instant>,
    /// That task has the other end.
    serving: Weak<()>,
    writing: Option<Writing>,
    /// Later writes of the same run, which its lane makes as soon as that one is answered.
    after: Vec<RunWrite>,
}

/// The write that is on its way here.
struct Writing {
    run: RunId,
    /// Answers it, or gives back what the commit did not take.
    write: BoxFuture<'static, Vec<RunWrite>>,
}

/// A write on its way, until this is dropped.
pub(super) struct OnWay {
    count: Arc<AtomicUsize>,
    /// Whether there was no other when it began.
    is_lone: bool,
}

impl Drop for OnWay {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Near {
    pub(super) fn new(shared: Arc<Shared>, lanes: Lanes<RunWrite>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            lanes,
            on_way: Arc::default(),
            is_off: Arc::default(),
            is_writing: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Counts a write that is about to be submitted.
    pub(super) fn begin(&self) -> OnWay {
        let is_lone = self.on_way.fetch_add(1, Ordering::AcqRel) == 0;
        OnWay { count: Arc::clone(&self.on_way), is_lone }
    }

    /// Submits a write: sends it here if it is alone, else to its lane.
    pub(super) fn submit(self: &Arc<Self>, write: RunWrite) {
        let is_lone = write.way.is_lone;
        if !is_lone && !self.is_writing.load(Ordering::Acquire) {
            return self.lanes.submit(write);
        }
        let mut state = self.lock();
        match &state.writing {
            // It must not overtake the one before it, which a lane may have to make after all.
            Some(writing) if writing.run == write.lease.run => state.after.push(write),
            None if is_lone && state.takes(&write) => self.send(&mut state, write),
            _ => {
                if is_lone {
                    self.begin_link(&mut state);
                }
                drop(state);
                self.lanes.submit(write);
            }
        }
    }

    /// Puts a write on the socket. The task that serves the connection will hear the answer.
    fn send(self: &Arc<Self>, state: &mut State, write: RunWrite) {
        let Some(link) = &state.link else { return self.lanes.submit(write) };
        let (run, mut wire) = (write.lease.run, link.wire());
        // The lanes live on until the write is answered, even when the store is dropped.
        let near = Arc::clone(self);
        let write = Box::pin(async move {
            let left = batch::offered(vec![write], &mut wire).await;
            drop(near);
            left
        });
        state.writing = Some(Writing { run, write });
        self.is_writing.store(true, Ordering::Release);
        let _ = self.advance(state);
    }

    /// Makes a connection where it is worth one: on a runtime with threads of its own, which goes on
    /// while its callers block.
    fn begin_link(self: &Arc<Self>, state: &mut State) {
        state.lone = state.lone.saturating_add(1);
        let too_soon = state.tried.is_some_and(|tried| tried.elapsed() < PAUSE);
        let is_there = state.serving.strong_count() > 0;
        if state.lone < NEAR_AFTER || is_there || too_soon || self.is_off.load(Ordering::Acquire) {
            return;
        }
        let Ok(here) = Handle::try_current() else { return };
        if here.runtime_flavor() != RuntimeFlavor::CurrentThread {
            let serving = Arc::new(());
            (state.tried, state.serving) = (Some(Instant::now()), Arc::downgrade(&serving));
            let link = Link::connect(Arc::clone(&self.shared), Arc::clone(&self.is_off));
            here.spawn(serve(Arc::downgrade(self), link, serving));
        }
    }

    /// Whether there is a connection for lone writes, which is made now if it can be. For tests.
    #[cfg(feature = "conformance")]
    pub(super) fn is_near(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        state.lone = NEAR_AFTER;
        self.begin_link(&mut state);
        state.link.is_some()
    }

    /// Sends what is to be sent and hears what was answered; ready when the connection is of no more
    /// use.
    fn advance(&self, state: &mut State) -> Poll<()> {
        let State { link, writing, .. } = state;
        let Some(link) = link else { return Poll::Ready(()) };
        let mut left = None;
        link.advance(|cx| {
            if let Some(Writing { write, .. }) = writing
                && let Poll::Ready(refused) = write.as_mut().poll(cx)
            {
                (left, *writing) = (Some(refused), None);
            }
        });
        let is_over = link.is_over(writing.is_some());
        if is_over {
            // A caller may have seen it, and the task has to end.
            link.wake();
        }
        if let Some(left) = left {
            self.hand_on(state, left);
        }
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Lets the lanes have the run whose write was here: first what is left of that, then what came
    /// after it. Not before is the run theirs for those who come now.
    fn hand_on(&self, state: &mut State, left: Vec<RunWrite>) {
        let after = std::mem::take(&mut state.after);
        left.into_iter().chain(after).for_each(|write| self.lanes.submit(write));
        self.is_writing.store(false, Ordering::Release);
    }

    /// Gives up what is on its way, whose caller hears that there was no answer.
    fn end(&self) {
        let mut state = self.lock();
        let given_up = (state.link.take(), state.writing.take());
        state.tried = Some(Instant::now());
        self.hand_on(&mut state, Vec::new());
        drop(state);
        drop(given_up);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        // The task ends that would hear the answers.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = &state.link {
            link.wake();
        }
    }
}

impl State {
    /// Whether a lone write can be sent: small, of the usual kind, and by a caller on the runtime that
    /// drives the connection.
    fn takes(&self, write: &RunWrite) -> bool {
        write.bytes() <= NEAR_BYTES_MAX
            && write.records.len() <= NEAR_RECORDS_MAX
            && write.is_ordinary()
            && self.link.as_ref().is_some_and(Link::is_here)
    }
}

/// Makes the connection and hears what is said on it, until it or the store is no more.
async fn serve(near: Weak<Near>, link: impl Future<Output = Option<Link>>, _serving: Arc<()>) {
    let _served = Served(Weak::clone(&near));
    let Some(link) = link.await else { return };
    match near.upgrade() {
        Some(near) => near.lock().link = Some(link),
        None => return,
    }
    std::future::poll_fn(|_| match near.upgrade() {
        Some(near) => near.advance(&mut near.lock()),
        None => Poll::Ready(()),
    })
    .await;
}

/// Gives the connection up with the task that hears it: a runtime may end at any time.
struct Served(Weak<Near>);

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(near) = self.0.upgrade() {
            // There may be runtimes that cannot connect, and say so in this way.
            if std::thread::panicking() {
                near.is_off.store(true, Ordering::Release);
            }
            near.end();
        }
    }
}
