//! The bounds of the server, each with the reason for its number.
//!
//! Never decides what happens past them. The library's own are in `onward::limits`.

use std::time::Duration;

/// Bytes of one request's body: 4 MiB, room for a payload of full size with the rest of the request
/// around it and its text escaped.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Rows of one page: a few screenfuls; more come with the next.
pub const PAGE_MAX: usize = 200;

/// Rows of one page when the request names no number.
pub const PAGE_DEFAULT: usize = 50;

/// Bytes of payload after which a page of a history ends: what a browser still takes in at once.
pub const HISTORY_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Rows of one export: more belong into a copy of the store.
pub const EXPORT_ROWS_MAX: usize = 100_000;

/// Characters of an `Idempotency-Key`, as its draft and others have it.
pub const IDEMPOTENCY_KEY_MAX: usize = 255;

/// How long a start waits for the run's end: shorter than what proxies wait for an answer.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// How long one request starts runs for times that have passed: shorter than what proxies wait for an
/// answer. Sent again, it goes on.
pub const BACKFILL_MAX: Duration = Duration::from_secs(25);

/// How long one request deletes runs that ended long ago: shorter than what proxies wait for an answer.
/// Sent again, it goes on.
pub const PRUNE_MAX: Duration = Duration::from_secs(25);

/// Runs that are read at once where many are looked through: they come with their payloads, and a
/// hundred of full size still fit into memory.
pub const SCAN_PAGE: usize = 100;

/// Runs that counts by workflow are taken from: the newest, in a few pages.
pub const WORKFLOWS_SAMPLE: usize = 500;

/// Waiting runs that one request looks at for those that wait for one kind of thing: no index tells
/// them apart, and ten pages are read in a fraction of a second.
pub const WAITING_SCAN: usize = 1_000;

/// Ended runs that the times of steps are computed over.
pub const STEPS_SAMPLE: usize = 200;

/// Records that the times of steps are computed over: as many as one history may have.
pub const STEPS_RECORDS_MAX: usize = 20_000;

/// Failed runs that errors are grouped over.
pub const ERRORS_SAMPLE: usize = 2_000;

/// Runs that one step of a change of many runs changes: a second or two of writes.
pub const OPERATION_PAGE: usize = 200;

/// Seconds that one step of a change of many runs lasts at a pace: a server that is asked to stop waits
/// for it.
pub const OPERATION_PACED_SECS: u32 = 5;

/// Pages that one change of many runs goes through: a million runs, in a history of half its limit.
pub const OPERATION_PAGES_MAX: usize = 5_000;

/// Runs that a change of many runs names one by one; more are said with a filter.
pub const OPERATION_IDS_MAX: usize = 1_000;

/// Characters of the reason of a change of many runs, which the audit keeps: a sentence or two.
pub const OPERATION_REASON_MAX: usize = 500;

/// Runs that are counted before a change of them.
pub const OPERATION_MATCH_MAX: usize = 10_000;

/// How long counts of runs are shown before they are counted again: several pages ask for them at
/// once, and over millions of runs they cost the store a while.
pub const STATS_KEPT: Duration = Duration::from_secs(1);

/// How old an end is before it is counted: a commit that waited for a lock is seen later than its
/// time. Longer than any write of the store's waits for its locks and its answer, with the times that a
/// store has unless told otherwise; an end that comes later is missed.
pub const ENDS_LAG: Duration = Duration::from_secs(30);

/// Looks at ends of one kind for one answer: with [`onward::limits::ENDS_COUNTED_MAX`] each, ten
/// thousand ends a second are kept up with by a scrape every fifteen seconds.
pub const ENDS_LOOKS_MAX: usize = 10;

/// Queues whose oldest run the metrics name: each is a row at every scrape.
pub const QUEUES_COUNTED: usize = 1_000;

/// Requests that one caller may send at once, before they are counted by the second.
pub const RATE_BURST: u32 = 200;

/// Requests of one caller in a second, over time: far more than a person at a page makes.
pub const RATE_PER_SECOND: u32 = 100;

/// Wrong tokens from one address at once, before they are counted by the second.
pub const WRONG_TOKENS_BURST: u32 = 10;

/// Wrong tokens from one address in a second, over time.
pub const WRONG_TOKENS_PER_SECOND: u32 = 1;

/// Callers whose requests are counted; those that have been quiet are forgotten first.
pub const RATE_CALLERS_MAX: usize = 10_000;

/// Streams that are open at once: each is a task, and looks at the store now and then.
pub const STREAMS_MAX: usize = 256;

/// Runs that one stream watches in detail.
pub const STREAM_RUNS_MAX: usize = 8;

/// The shortest pause between two frames of a stream: at most four in a second.
pub const FRAME_EVERY: Duration = Duration::from_millis(250);

/// The pause after which a stream says that it lives: shorter than what proxies wait.
pub const PING_EVERY: Duration = Duration::from_secs(15);

/// How long the dashboard's cookie lasts.
pub const SESSION_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Tokens that one server knows: each is compared with every token that comes.
pub const TOKENS_MAX: usize = 1_000;

/// Connections that are open at once: each is a task and a file of the process. Others wait to be
/// accepted.
pub const CONNECTIONS_MAX: usize = 1_000;

/// How long a client may take to send the head of a request, from the end of the one before: slow
/// networks need a second, and whoever sends a byte now and then holds a connection no longer than this.
pub const HEAD_MAX: Duration = Duration::from_secs(30);

/// How long a client may take to send the body of a request. A connection that trickles would else be
/// held for ever, and the number of connections is bounded.
pub const BODY_MAX: Duration = Duration::from_secs(60);

/// How long a server that is asked to stop lets requests finish, after its pause: less than the 30 s
/// that Kubernetes waits before it kills, with a pause of 3 s to spare.
pub const DRAIN_MAX: Duration = Duration::from_secs(25);
