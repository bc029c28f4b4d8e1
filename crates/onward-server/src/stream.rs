//! `/stream`: says what changed, as it changes (server-sent events).
//!
//! Owns: one watcher of the store for all streams, and at most four frames a second for each. Never
//! sends what changed, only that it did: whoever is told looks again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use onward::store::{Topic, Which};
use onward::{Code, Fingerprint, RunId, RunState};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;

use crate::api::export::Chunks;
use crate::app::App;
use crate::guard;
use crate::limits::{FRAME_EVERY, STREAM_RUNS_MAX};
use crate::problem::Problem;
use crate::request::{Params, run_id};

/// How often a stream looks at the runs that it watches, since a record of a run gives no hint; and
/// whether its reader may read on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the workers are worth another look: their leases move all the time.
const WORKERS_EVERY: Duration = Duration::from_secs(5);

/// How often all is worth another look though no hint came, as over a store that gives none.
const ANY_EVERY: Duration = Duration::from_secs(60);

/// When a change is told once more: counts are kept for a second, and whoever looked at once may have
/// seen the old ones.
const TRAIL_AFTER: Duration = Duration::from_millis(1_100);

/// Frames that wait for a slow reader, before the stream ends: they come together again after that.
const FRAMES_AHEAD: usize = 16;

/// When a reader that was cut off comes again.
const RETRY_MS: u64 = 1_000;

/// Ends of sessions that wait for a stream to hear of them; a stream that missed one ends, and its reader
/// comes again if it may.
const SESSIONS_AHEAD: usize = 16;

/// What has changed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Changes of anything.
    any: u64,
    /// Changes of schedules.
    schedules: u64,
    /// Times at which the workers were worth another look.
    workers: u64,
}

/// What all streams of a server share.
pub(crate) struct Changes {
    /// Tells the numbers of this process from those of the one before.
    epoch: u128,
    seen: watch::Sender<Seen>,
    /// Says which sessions end.
    sessions: broadcast::Sender<Fingerprint>,
    open: AtomicUsize,
    watching: AtomicBool,
}

impl Changes {
    pub(crate) fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (seen, _) = watch::channel(Seen::default());
        let (open, watching) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sessions, _) = broadcast::channel(SESSIONS_AHEAD);
        Self { epoch: since.as_micros(), seen, sessions, open, watching }
    }

    /// Ends the streams of a session.
    pub(crate) fn end_session(&self, session: Fingerprint) {
        // Without a stream nobody hears it, and nobody needs to.
        let _ = self.sessions.send(session);
    }

    /// How many streams are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether nobody watches the store yet. What happened until now was not seen by anybody, so whoever
    /// comes again is told that everything may have changed.
    fn begin_watching(&self) -> bool {
        if self.watching.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.seen.send_modify(|seen| {
            seen.any += 1;
            seen.schedules += 1;
        });
        true
    }

    fn id(&self, seen: Seen) -> String {
        format!("{}-{}", self.epoch, seen.any)
    }
}

/// Counts an open stream for as long as it lives.
struct Open(App);

impl Open {
    fn of(app: &App) -> Option<Self> {
        let most = app.options.streams_max;
        let enter = |open| (open < most).then_some(open + 1);
        let open = &app.changes.open;
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).ok()?;
        Some(Self(app.clone()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.changes.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `GET /api/v1/stream`.
pub(crate) async fn open(
    State(app): State<App>,
    params: Params,
    head: Parts,
) -> Result<Response, Problem> {
    let runs = params.all("run").map(run_id).collect::<Result<Vec<_>, _>>()?;
    if runs.len() > STREAM_RUNS_MAX {
        return Err(Problem::invalid("run", format!("more than {STREAM_RUNS_MAX} of them")));
    }
    let Some(open) = Open::of(&app) else {
        let most = app.options.streams_max;
        let text = format!("{most} streams are open, as many as may be");
        return Err(Problem::new(Code::RateLimited, text).retry_after_ms(RETRY_MS));
    };
    let last = head.headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let (send, receive) = mpsc::channel(FRAMES_AHEAD);
    watch_store(&app);
    tokio::spawn(Stream::new(app, send, head, runs).tell(last, open));
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((head, Body::from_stream(Chunks(receive))).into_response())
}

/// Watches the store while any stream is open; one watcher, however many there are.
fn watch_store(app: &App) {
    let app = app.clone();
    // Entered before a stream begins, so that it misses nothing.
    let (mut any, mut schedules) =
        (app.store().wait(Topic::Any), app.store().wait(Topic::Schedules));
    if !app.changes.begin_watching() {
        return;
    }
    tokio::spawn(async move {
        let wait = |topic| app.store().wait(topic);
        let (mut workers_at, mut any_at, mut trails) = (Instant::now(), Instant::now(), false);
        while app.changes.open() > 0 {
            let pause = if trails { TRAIL_AFTER } else { WORKERS_EVERY };
            let (planned, told) = tokio::select! {
                biased;
                () = &mut schedules => (true, true),
                () = &mut any => (false, true),
                () = tokio::time::sleep(pause) => (false, false),
            };
            // Entered before anybody is told, so that what changes meanwhile is told next.
            (any, schedules) = (wait(Topic::Any), wait(Topic::Schedules));
            let is_any = told || trails || any_at.elapsed() >= ANY_EVERY;
            trails = told;
            app.changes.seen.send_modify(|seen| {
                if is_any {
                    (seen.any, any_at) = (seen.any + 1, Instant::now());
                }
                seen.schedules += u64::from(planned);
                if workers_at.elapsed() >= WORKERS_EVERY {
                    (seen.workers, workers_at) = (seen.workers + 1, Instant::now());
                }
            });
            tokio::time::sleep(FRAME_EVERY).await;
        }
        app.changes.watching.store(false, Ordering::Release);
        // A stream that was opened since the last look found a watcher, and would have none.
        if app.changes.open() > 0 {
            watch_store(&app);
        }
    });
}

/// One stream.
struct Stream {
    app: App,
    send: mpsc::Sender<Result<Bytes, io::Error>>,
    /// The head of the request, by which the reader is known.
    head: Parts,
    session: Option<Session>,
    seen: watch::Receiver<Seen>,
    known: Seen,
    runs: Vec<Watched>,
}

/// The session that a stream is part of.
struct Session {
    cookie: Fingerprint,
    ended: broadcast::Receiver<Fingerprint>,
}

impl Session {
    fn of(app: &App, head: &Parts) -> Option<Self> {
        // Entered before it is asked who it is, so that no end is missed in between.
        let ended = app.changes.sessions.subscribe();
        guard::session(app, head).map(|cookie| Self { cookie, ended })
    }

    /// Resolves when it ends, or may have.
    async fn over(session: &mut Option<Self>) {
        let Some(Self { cookie, ended }) = session else { return std::future::pending().await };
        while let Ok(other) = ended.recv().await {
            if other == *cookie {
                return;
            }
        }
    }
}

/// A run that a stream watches in detail.
struct Watched {
    id: RunId,
    state: Option<(RunState, u32, u64)>,
    after: Option<u64>,
}

impl Stream {
    fn new(
        app: App,
        send: mpsc::Sender<Result<Bytes, io::Error>>,
        head: Parts,
        runs: Vec<RunId>,
    ) -> Self {
        let session = Session::of(&app, &head);
        let seen = app.changes.seen.subscribe();
        let known = *seen.borrow();
        let runs = runs.into_iter().map(|id| Watched { id, state: None, after: None }).collect();
        Self { app, send, head, session, seen, known, runs }
    }

    /// Tells what changes until the reader goes, logs out, may not read any more, or the server stops.
    async fn tell(mut self, last: Option<String>, _open: Open) {
        let app = self.app.clone();
        for at in 0..self.runs.len() {
            self.look(at).await;
        }
        if self.begin(last).await.is_err() {
            return;
        }
        let every = app.options.ping_every;
        let mut ping = tokio::time::interval_at(Instant::now() + every, every);
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            let told = tokio::select! {
                () = app.closed() => return,
                () = self.send.closed() => return,
                () = Session::over(&mut self.session) => return,
                changed = self.seen.changed() => match changed {
                    Ok(()) => self.frame().await,
                    Err(_) => return,
                },
                _ = look.tick() => self.frame().await,
                _ = ping.tick() => self.write(": ping\n\n".to_owned()).await,
            };
            if told.is_err() {
                return;
            }
            tokio::time::sleep(FRAME_EVERY).await;
        }
    }

    /// Says from where on the reader is told, and what it missed.
    async fn begin(&mut self, last: Option<String>) -> Result<(), Gone> {
        let id = self.app.changes.id(self.known);
        let missed = match &last {
            None => String::new(),
            Some(last) if *last == id => String::new(),
            Some(last) if last.starts_with(&format!("{}-", self.app.changes.epoch)) => {
                frame("change", &id, &ALL.map(str::to_owned))
            }
            Some(_) => frame("reset", &id, &[]),
        };
        self.write(format!("retry: {RETRY_MS}\nid: {id}\n: open\n\n{missed}")).await
    }

    async fn frame(&mut self) -> Result<(), Gone> {
        // A token that was taken away ends its streams, too.
        if !guard::is_known(&self.app, &self.head) {
            return Err(Gone);
        }
        let now = *self.seen.borrow_and_update();
        let mut topics = Vec::new();
        if now.any != self.known.any {
            topics.extend(["runs".to_owned(), "queues".to_owned()]);
        }
        if now.schedules != self.known.schedules {
            topics.push("schedules".to_owned());
        }
        if now.workers != self.known.workers {
            topics.push("workers".to_owned());
        }
        self.known = now;
        for at in 0..self.runs.len() {
            if self.look(at).await {
                topics.push(format!("run:{}", self.runs[at].id));
            }
        }
        if topics.is_empty() {
            return Ok(());
        }
        let id = self.app.changes.id(now);
        self.write(frame("change", &id, &topics)).await
    }

    /// Whether a watched run is another than at the last look.
    async fn look(&mut self, at: usize) -> bool {
        let watched = &mut self.runs[at];
        let state = self.app.store().get(Which::Id(watched.id)).await.ok().flatten();
        let state = state.map(|run| (run.state, run.attempt, run.wakes));
        let mut changed = state != watched.state;
        watched.state = state;
        loop {
            let page = self.app.store().history(watched.id, watched.after, 1_000).await;
            let Ok(page) = page else { return changed };
            if let Some(last) = page.records.last() {
                (watched.after, changed) = (Some(last.seq), true);
            }
            if !page.more {
                return changed;
            }
        }
    }

    /// A reader that does not read is let go: it comes again, and is told what it missed.
    async fn write(&self, text: String) -> Result<(), Gone> {
        self.send.try_send(Ok(Bytes::from(text))).map_err(|_| Gone)
    }
}

/// The reader has gone, or may not read any more.
struct Gone;

const ALL: [&str; 4] = ["runs", "queues", "workers", "schedules"];

fn frame(event: &str, id: &str, topics: &[String]) -> String {
    let data = serde_json::json!({ "topics": topics });
    format!("event: {event}\nid: {id}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_watched_may_have_changed() {
        let changes = Changes::new();
        let id = || changes.id(*changes.seen.borrow());
        let before = id();
        assert!(changes.begin_watching());
        let since = id();
        assert_ne!(since, before, "whoever comes again with the old one is told");
        assert!(!changes.begin_watching());
        assert_eq!(id(), since, "a second stream changes nothing");
    }
}
