//! The limits that a user can meet, in one place, each with the reason for its number.
//!
//! Owns: the numbers. Never decides what happens past them; that is the caller's error.

use std::time::Duration;

/// Bytes of JSON in one input, step result, output or failure detail: 2 MiB.
/// Larger values belong in an object store, with their address in the payload; at this size one
/// record still fits a commit without holding up its neighbours.
pub const PAYLOAD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Arrays and objects in one another in such a value: 100. Most readers take 127 or a few more, and what
/// shows a payload puts some around it: the end of a child, a record, a page of runs.
pub const PAYLOAD_DEPTH_MAX: u32 = 100;

/// Bytes that one encoded payload decodes to: an input, result or output of full length, and room for
/// the message of a failure or the end of a child around it. What would unpack to more is refused.
pub const DECODED_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 256 * 1024;

/// Bytes from which a payload is compressed, unless told otherwise: below half a kilobyte there is
/// little to gain, and the envelope around it costs a hundred.
pub const COMPRESSION_BYTES_MIN: usize = 512;

/// How soon a run whose payloads could not be read is looked at again: another worker may have the
/// key. It doubles with each attempt.
pub const UNREADABLE_LOOK_MIN: Duration = Duration::from_secs(5);

/// The longest time until such a run is looked at again: five minutes after a key is back, every run
/// goes on, and a look costs two commits.
pub const UNREADABLE_LOOK_MAX: Duration = Duration::from_secs(5 * 60);

/// Records in one run's history: 20,000, room for a fan-out over ten thousand items and what goes with
/// it. A claim reads the whole history, so this bounds what a claim costs; past it a run goes on with [`Ctx::continue_as`](crate::Ctx::continue_as).
pub const HISTORY_RECORDS_MAX: usize = 20_000;

/// Bytes of payload in one run's history: 32 MiB, what a claim may read into memory.
pub const HISTORY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The share of a history limit at which a warning names the run, in percent: it leaves four
/// thousand records to act on it.
pub const HISTORY_WARN_PERCENT: usize = 80;

/// Bytes of a workflow, queue or tag name. Short enough for an index entry and a table column.
pub const NAME_BYTES_MAX: usize = 128;

/// Bytes of a run's key: room for a URL or a few joined ids, and still an index entry.
pub const KEY_BYTES_MAX: usize = 512;

/// Bytes of a step id, run id included: what HTTP services accept as an idempotency key.
pub const STEP_ID_BYTES_MAX: usize = 255;

/// Signals that one run is sent in its life: half as many as its history has records, since each one
/// that is taken is a record. Past it the sender is refused. The ends of children count, but are kept
/// past it too.
pub const SIGNALS_MAX: u64 = 10_000;

/// Bytes of the signals that one run is sent in its life: 16 MiB, half of what its history may hold, since each
/// signal that is taken is a record. Past it the sender is refused. The ends of children count, but are kept past
/// it too.
pub const SIGNALS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of signals after which one look at a run's inbox, or one claim of the run, reads no further one:
/// 8 MiB, four signals of full size. The next look continues.
pub const INBOX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Signals with a sender's key that a run took and that the run which goes on for it still knows, the
/// latest of them: a sender who repeats one is not taken for another.
pub const SIGNAL_KEYS_CARRIED_MAX: usize = 256;

/// The queue of a run, and of a worker, that names none.
pub const QUEUE_DEFAULT: &str = "default";

/// Tags of one run. Tags are for finding runs, not for carrying data, and each is a row in an
/// index.
pub const TAGS_MAX: usize = 32;

/// Bytes of a tag's value, which is looked for as a key is.
pub const TAG_VALUE_BYTES_MAX: usize = 512;

/// Lines that a run's log keeps: the last ones, since they tell what the run is about. With the
/// bytes of a line it bounds a log at 1 MiB.
pub const LOG_LINES_MAX: usize = 1_000;

/// Bytes of a line of a run's log; longer ones are cut, with a mark. A line is for people; what is
/// longer belongs in a step's result.
pub const LOG_LINE_BYTES_MAX: usize = 1_024;

/// How long a run's notes (lines, progress, tags) may wait for the write that keeps them: so soon are
/// they seen, and so seldom does a run write that notes all the time.
pub const NOTE_EVERY: Duration = Duration::from_secs(1);

/// Runs that a change to many reads at once: a page, which comes with its payloads and is all that is
/// held in memory.
pub const STEER_BATCH_MAX: usize = 100;

/// Runs that a change to many changes at the same moment: their writes share a commit, and other
/// writers wait for no more than these.
pub const STEER_AT_ONCE: usize = 16;

/// Runs in one call of a store's `start`: large enough that the commit's cost vanishes, small
/// enough that other writers wait only milliseconds for it.
pub const START_BATCH_MAX: usize = 500;

/// Runs in one claim: it fills a worker of the default concurrency at once.
pub const CLAIM_BATCH_MAX: usize = 256;

/// Bytes of inputs, signals and histories that one claim may carry before it stops taking further runs:
/// 64 MiB, two histories of full length. It bounds the memory of one claim.
pub const CLAIM_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Runs that a sweep, a wake-up or a worker that leaves moves in one transaction: it keeps the transaction short
/// when a large worker dies or leaves.
pub const SWEEP_BATCH_MAX: usize = 1_000;

/// Runs that precede a cancelled run through `continue_as`, and whose children one sweep looks for: a chain
/// may be long, and each run needs a look. The next pass continues.
pub const CASCADE_BACK_MAX: usize = 1_000;

/// Runs past their deadline that one sweep ends, or opens to be undone: each needs its own write, as
/// children do. The next pass continues.
pub const LATE_BATCH_MAX: usize = 100;

/// Children of cancelled runs that one sweep asks to end: each is a write of its own, and a sweep must
/// not take long. The next pass goes on.
pub const CASCADE_BATCH_MAX: usize = 100;

/// Batches of children that whoever ends a cancelled run asks to end at once: thousands of children, so
/// that few families wait for the next sweep.
pub const CASCADE_PASSES_MAX: usize = 64;

/// How long a worker that was lost is kept when it holds no run: a day, so that people can still
/// see who died, and a crash loop does not fill the store with rows.
pub const LOST_WORKERS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Rows after which one prune deletes no further run: a fraction of a second for the only writer of a file. A
/// single run may have more.
pub const PRUNE_ROWS_MAX: usize = 5_000;

/// Runs that one prune deletes in a transaction: fewer than a sweep moves, because each has rows in
/// several tables, and a prune must not hold up live work.
pub const PRUNE_BATCH_MAX: usize = 500;

/// The longest rest between two batches of a prune, which rests as long as it worked: live work has
/// the store for half of the time at least.
pub const PRUNE_REST_MAX: Duration = Duration::from_secs(1);

/// Runs that one step of a copy takes from a store to another: as many as a claim, since each comes
/// with its history as there.
pub const COPY_BATCH_MAX: usize = 256;

/// Bytes of payload after which one step of a copy takes no further run: 8 MiB, a transaction that
/// any store commits in well under a second. One run alone may be larger.
pub const COPY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Records, signals and log lines after which one batch of a copy takes no further run: as many as the longest
/// history has records. One run alone may have more.
pub const COPY_ROWS_MAX: usize = 20_000;

/// Times that a copy goes through the source: once to copy, once to compare, and twice more for what
/// was started meanwhile. Past that the callers are not stopped.
pub const COPY_PASSES_MAX: u32 = 4;

/// Rows of one page of a list or a history: it bounds the memory of one answer.
pub const PAGE_ROWS_MAX: usize = 1_000;

/// Rows of one page when the caller names no number: a screenful or two.
pub const PAGE_ROWS_DEFAULT: usize = 100;

/// Writes in one group commit: past this a batch adds latency and no throughput.
pub const COMMIT_BATCH_MAX: usize = 1_024;

/// Bytes of payload after which a group commit takes no further write.
pub const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Suppressed duplicates kept in detail per key; the count goes on past it. Enough to see who
/// repeats a request, and a caller in a loop does not fill the store.
pub const DUPLICATES_KEPT_MAX: usize = 100;

/// How long a debounced or throttled start is known again: a start whose answer was lost is made again
/// within a minute or two, and an hour of them is little to keep.
pub const GATHERED_KEPT: Duration = Duration::from_secs(60 * 60);

/// Gathered starts that are too old to be made again, and are deleted with each new one: more than one,
/// so that they never grow in number, and few enough to cost it nothing.
pub const GATHERED_PURGE_BATCH: usize = 4;

/// How long a step key is held without renewal: three renewals fit, and a runtime that is busy for
/// some seconds does not lose it. So long does a dead process keep others from the key, unless its
/// own run goes on before.
pub const KEY_LEASE: Duration = Duration::from_secs(30);

/// How long whoever waits for a step key leaves a hold alone that has expired: one more renewal of its
/// holder, and two seconds for its answer. The hold of a process that lives may have expired because the
/// clock was set forward. Only time counts in which the store answers: in an outage no holder can renew.
pub const KEY_EXPIRED_WAIT: Duration = Duration::from_secs(12);

/// Expired holds of which a client remembers for how long they have been seen so, for callers who give up
/// before they have seen it long enough: more than are asked for at once after a crash, and they take less
/// than a megabyte.
pub const KEY_EXPIRED_SEEN_MAX: usize = 1_000;

/// How long a hold that has expired is kept, if nobody sees for [`KEY_EXPIRED_WAIT`] that it has: longer
/// than any clock is set forward by, since its holder may be at work.
pub const KEY_HELD_KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The longest pause between two looks at a step key that is held elsewhere: a look costs a parked
/// run two commits, and whoever is in memory is told sooner.
pub const KEY_LOOK_MAX: Duration = Duration::from_secs(30);

/// Step keys whose time is over that a new hold deletes along with itself: more than one, so that
/// they never grow in number, and few enough to cost it nothing.
pub const KEY_PURGE_BATCH: usize = 4;

/// Runs that one worker executes at once, unless told otherwise: most steps wait for the network,
/// and a hundred keeps the memory of an unknown workload modest.
pub const CONCURRENCY_DEFAULT: usize = 100;

/// The most runs that one worker may execute at once: each costs kilobytes, and more of them belong
/// on another machine.
pub const CONCURRENCY_MAX: usize = 100_000;

/// Queues that may have limits or be paused at once: a claim reads them all, and they are for kinds of
/// work. What differs by customer is a lane.
pub const QUEUES_MAX: usize = 1_000;

/// The largest limit of a queue: more than any number of workers has at once.
pub const QUEUE_LIMIT_MAX: u32 = 1_000_000;

/// The most runs per period that a queue's rate may allow: a claim adds up what was granted in the
/// period, which may be a row for each.
pub const RATE_COUNT_MAX: u32 = 100_000;

/// The longest period of a queue's rate: a day. A quota for longer is for the workflow to keep.
pub const RATE_PERIOD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Lanes that a claim looks at to find those that have room: it holds up the queue's other claims
/// meanwhile. Past that the next claim goes on where this one stopped.
pub const LANES_LOOK_MAX: usize = 1_000;

/// The pause after a claim that looked at so many lanes and found room in none, and after one that left a
/// queue out whose row another held: others are left to look at, and it must not be made over and over.
pub const LANES_LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Suspects, and runs that are kept off some builds, that a claim looks through for one whose lane has
/// room: both are few.
pub const SUSPECTS_LOOK_MAX: usize = 100;

/// How long a lease lasts without renewal, unless told otherwise: it rides out a slow commit or a
/// pause of the machine, and is short enough for a takeover that nobody notices.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(10);

/// The shortest lease: renewal happens three times in a lease and must survive a slow commit.
pub const LEASE_MIN: Duration = Duration::from_millis(200);

/// Number of leases for which a worker's runtime may fail to poll the task that claims before the worker's
/// lease is no longer renewed and others execute its runs. It is long enough for a blocking call that
/// should not be there.
pub const HANG_LEASES_MAX: u32 = 3;

/// How long [`shutdown`](crate::Worker::shutdown) lets step bodies finish: less than the 30 s that
/// Kubernetes waits before it kills.
pub const SHUTDOWN_GRACE_DEFAULT: Duration = Duration::from_secs(25);

/// How long a cancelled step's body may go on before it is dropped: time to abort a request and
/// tidy up.
pub const CANCEL_GRACE_DEFAULT: Duration = Duration::from_secs(5);

/// How long the body of a transactional step may take, and half a lease if that is shorter: it
/// holds up every other write of its store, renewals included, and a lease must survive it.
pub const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Waits that end within this time do not park the run: parking and claiming again costs two
/// commits, which a short retry is not worth.
pub const LINGER_DEFAULT: Duration = Duration::from_secs(1);

/// The longest delay between two tries of a step: a day. A step that should wait for longer is a
/// [`Ctx::sleep`](crate::Ctx::sleep).
pub const RETRY_DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest sleep, delay, timeout or key life: one hundred years, so that time arithmetic
/// cannot overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Losses in a row, with no record between them, after which a run is claimed alone: one or two are
/// a deploy or a power cut, which hit every run.
pub const SUSPECT_CRASHES: u32 = 3;

/// Losses in a row, with no record between them, after which a run waits as `crash_loop`: the
/// pauses between them add up to two minutes, longer than a bad moment of a machine.
pub const CRASHES_MAX: u32 = 10;

/// Losses in a row, with no record between them, after which a run that was asked to end, or whose
/// time is over, ends without executing any of its code. As many again as make a crash loop, so that
/// what its steps did to their workers does not keep its undos from being tried.
pub const ENDING_CRASHES_MAX: u32 = 2 * CRASHES_MAX;

/// The longest pause before a suspect is claimed again. It doubles from 1 s; a minute bounds how
/// long a mended run waits.
pub const CRASH_BACKOFF_MAX: Duration = Duration::from_secs(60);

/// How long a worker stops claiming other runs, to be alone with a suspect, before it takes the suspect
/// anyway; and how long the suspect is alone then. A suspect must neither starve nor stop the worker. With
/// the pause of a second, an innocent suspect behind a killer is executed well within ten seconds.
pub const SUSPECT_PATIENCE: Duration = Duration::from_secs(3);

/// How long a worker claims only suspects while there are more of them: a hundred short suspects end in
/// that time, and no other run waits longer.
pub const SUSPECTS_TURN_MAX: Duration = Duration::from_secs(6);

/// Suspects that are executed side by side, once as many of their batch were innocent: a killer among them
/// takes no more than these with it, and after that each of them is executed alone.
pub const SUSPECTS_BESIDE_MAX: usize = 8;

/// Polls of a workflow function without a pause before a warning says that it never rests: no
/// ordinary function comes near it.
pub const RESTLESS_POLLS_MAX: u32 = 1_000;

/// A poll that holds its thread longer than this is named in a warning: a poll should take
/// microseconds, so this is long enough to be sure.
pub const BLOCKING_POLL_WARN: Duration = Duration::from_millis(100);

/// Unasked-for records that a history mismatch lists: the first few show where the function went
/// another way.
pub const MISMATCH_LISTED_MAX: usize = 10;

/// Calls of [`Ctx::on_cancel`](crate::Ctx::on_cancel) in one run: each is a step when the run is
/// cancelled, and nobody needs many.
pub const ON_CANCEL_MAX: usize = 1_000;

/// Tries of an undo, unless told otherwise: with pauses that double from a second up to
/// [`UNDO_PAUSE_MAX`] they ride out an outage of half an hour, after which a person has to look.
pub const UNDO_TRIES_DEFAULT: u32 = 20;

/// The longest pause between two tries of an undo, unless told otherwise.
pub const UNDO_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Undone steps that the failure `undo_failed` lists: enough to act on, and it stays readable. The
/// history has the rest.
pub const LEFT_UNDONE_LISTED_MAX: usize = 100;

/// Bytes of the message of each of them; longer ones are cut. A hundred of them still fit one failure,
/// and the history has the whole.
pub const LEFT_UNDONE_MESSAGE_BYTES_MAX: usize = 500;

/// Refused items that [`start_many`](crate::Onward::start_many) returns in detail: a backfill of
/// millions must not collect millions of errors.
pub const REFUSALS_KEPT_MAX: usize = 100;

/// Bytes of a failure's message; longer ones are cut, with a mark. A message is for people, and an
/// HTML error page must not fill a history.
pub const FAILURE_MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Failed children that one retry of a parent which ran out of time looks at, and retries if they ran out
/// of time too: each is a few statements in the retry's transaction. If one is left, the parent fails for
/// it, and a further retry goes on with it.
pub const LATE_CHILDREN_MAX: usize = 100;

/// The shortest distance between two times of a schedule: a second, as a cron pattern has it. What
/// comes more often is a loop with [`Ctx::sleep`](crate::Ctx::sleep).
pub const SCHEDULE_EVERY_MIN: Duration = Duration::from_secs(1);

/// How late a time of a schedule may be fired and still count as on time: longer than the takeover
/// from a worker that died, so that a death alone makes nothing missed.
pub const SCHEDULE_GRACE: Duration = Duration::from_secs(15);

/// The most missed times of a schedule that are caught up: a day by the minute, or four years by
/// the day; for more there is a backfill.
pub const SCHEDULE_CATCH_UP_MAX: u32 = 1_500;

/// Runs that one firing of a schedule starts in a transaction; further ones follow in the next. Each
/// asks a few questions, and whoever changes the schedule waits for them.
pub const SCHEDULE_FIRE_MAX: usize = 50;

/// Due schedules that a worker reads at once: each comes with its input.
pub const SCHEDULES_DUE_MAX: usize = 32;

/// Times that one look ahead at a schedule gives: a screenful, whatever is asked for.
pub const SCHEDULE_NEXT_MAX: usize = 100;

/// How long a row of the audit is kept: four hundred days, so that a year can be looked back on.
pub const AUDIT_KEPT: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// Rows of the audit whose time is over that a new row deletes along with itself: more than one, so
/// that they never grow in number, and few enough to cost it nothing.
pub const AUDIT_PURGE_BATCH: usize = 4;

/// Runs, and ends of each kind, that are counted by the minute at most: a few hundred milliseconds
/// along an index, whatever an hour brought.
pub const SERIES_RUNS_MAX: usize = 20_000;

/// Ends of one kind that one look counts: tens of milliseconds along an index.
pub const ENDS_COUNTED_MAX: usize = 20_000;

/// Points at which a check of retry safety lets a process die: each costs about a millisecond, and a
/// workflow with more of them is better checked with a smaller input.
pub const CHECK_POINTS_MAX: usize = 2_000;

/// How often a check replays the whole of a run. If chance decides something, such as the order in which
/// `select!` polls, at least one of so many replays almost certainly takes another path.
pub const CHECK_REPLAYS: usize = 8;

/// How long one life of a process may take in a check, by the machine's clock: fakes answer at once,
/// so what takes longer hangs.
pub const CHECK_LIFE_MAX: Duration = Duration::from_secs(60);
