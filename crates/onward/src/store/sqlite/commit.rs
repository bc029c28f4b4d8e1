//! One group commit: several writes in one transaction, each with its own answer.
//!
//! Owns: begin, commit, undoing a bad write without its neighbours, and how many bytes a commit may
//! grow to. Never decides which other writes go together; that is the writer's queue.

use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::{Fault, Uncommitted};
use super::gate::Gate;
use super::tx::{Changes, Tx};
use crate::Clock;
use crate::store::Error;

/// Where a test may kill the process around a verb's commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    pub(super) before: &'static str,
    pub(super) after: &'static str,
}

/// A write that waits for its commit. It may be applied more than once; the last time counts.
pub(super) trait Write: Send {
    /// Writes, and keeps the answer for the caller.
    fn apply(&mut self, tx: &mut Tx<'_>) -> Result<(), Fault>;
    /// Replaces the answer: nothing was written.
    fn refuse(&mut self, error: Error);
    /// Where a test may kill the process.
    fn points(&self) -> Option<Points>;
    /// Tells the caller.
    fn answer(self: Box<Self>);
}

/// A verb with its arguments, and the caller that waits for it.
pub(super) struct VerbWrite<T, F> {
    verb: F,
    points: Option<Points>,
    answer: Option<Result<T, Error>>,
    caller: Option<oneshot::Sender<Result<T, Error>>>,
}

impl<T, F> VerbWrite<T, F> {
    pub(super) fn new(verb: F, points: Option<Points>) -> Self {
        Self { verb, points, answer: None, caller: None }
    }

    /// Where the answer arrives.
    pub(super) fn receiver(&mut self) -> oneshot::Receiver<Result<T, Error>> {
        let (caller, receiver) = oneshot::channel();
        self.caller = Some(caller);
        receiver
    }
}

impl<T, F> Write for VerbWrite<T, F>
where
    T: Send,
    F: FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send,
{
    fn apply(&mut self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        self.answer = Some(match (self.verb)(tx) {
            Ok(answer) => Ok(answer),
            Err(Fault::Refused(error)) => Err(error),
            Err(fault) => return Err(fault),
        });
        Ok(())
    }

    fn refuse(&mut self, error: Error) {
        self.answer = Some(Err(error));
    }

    fn points(&self) -> Option<Points> {
        self.points
    }

    fn answer(self: Box<Self>) {
        if let (Some(caller), Some(answer)) = (self.caller, self.answer) {
            // A caller that is gone does not mind.
            let _ = caller.send(answer);
        }
    }
}

/// Where and how writes are committed.
pub(super) struct Site<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) gate: &'a Gate,
    /// How long they wait for another process that writes.
    pub(super) patience: Duration,
}

/// What a commit took.
#[derive(Default)]
pub(super) struct Committed {
    pub(super) changes: Changes,
    /// How many of the writes, from the first on. The others belong into the next commit.
    pub(super) count: usize,
}

/// Writes them in one transaction, at least the first and no further ones past [`COMMIT_BYTES_MAX`]. On `Err` none
/// of them is written, for that reason.
///
/// When the commit is refused for what is in it, which only a user's body can bring about, it is
/// not known whose: then each is written in a transaction of its own.
///
/// [`COMMIT_BYTES_MAX`]: crate::limits::COMMIT_BYTES_MAX
pub(super) fn commit(
    conn: &Connection,
    at: &Site<'_>,
    writes: &mut [&mut dyn Write],
) -> Result<Committed, Fault> {
    match commit_together(conn, at, writes) {
        Err(Fault::Uncommitted(_)) if writes.len() > 1 => {}
        committed => return committed,
    }
    let mut all = Committed { count: writes.len(), ..Committed::default() };
    for write in writes.chunks_mut(1) {
        match commit_together(conn, at, write) {
            Ok(one) => all.changes.add(one.changes),
            Err(fault) => refuse_all(write, &fault),
        }
    }
    Ok(all)
}

fn commit_together(
    conn: &Connection,
    at: &Site<'_>,
    writes: &mut [&mut dyn Write],
) -> Result<Committed, Fault> {
    let applied = loop {
        match apply(conn, at, writes) {
            // At least one more write has its answer, so this ends.
            Err(Fault::Ended) => {}
            applied => break applied,
        }
    };
    let committed = applied.and_then(|applied| {
        let writes = &writes[..applied.count];
        points(writes).for_each(|points| crate::failpoint::hit(points.before));
        run(conn, "commit").map_err(|fault| match fault {
            Fault::Data(source) => Fault::Uncommitted(Uncommitted(source.to_string())),
            fault => fault,
        })?;
        points(writes).for_each(|points| crate::failpoint::hit(points.after));
        Ok(applied)
    });
    if committed.is_err() {
        roll_back(conn);
    }
    committed
}

/// Begins a transaction and applies them.
fn apply(
    conn: &Connection,
    at: &Site<'_>,
    writes: &mut [&mut dyn Write],
) -> Result<Committed, Fault> {
    // What a panic left open, or a write before.
    roll_back(conn);
    at.gate.begin(conn, at.patience)?;
    match apply_together(conn, at, writes) {
        Err(Fault::Data(_)) if writes.len() > 1 => {
            roll_back(conn);
            at.gate.begin(conn, at.patience)?;
            apply_each(conn, at, writes)
        }
        applied => applied,
    }
}

fn points(writes: &[&mut dyn Write]) -> impl Iterator<Item = Points> {
    writes.iter().filter_map(|write| write.points())
}

fn apply_together(
    conn: &Connection,
    at: &Site<'_>,
    writes: &mut [&mut dyn Write],
) -> Result<Committed, Fault> {
    let mut tx = Tx::new(conn, at.clock.now());
    let mut count = 0;
    for write in writes {
        write.apply(&mut tx)?;
        count += 1;
        if tx.is_full() {
            break;
        }
    }
    Ok(Committed { changes: tx.into_changes(), count })
}

/// Applies each write in a savepoint of its own, so that only the bad ones are undone.
fn apply_each(
    conn: &Connection,
    at: &Site<'_>,
    writes: &mut [&mut dyn Write],
) -> Result<Committed, Fault> {
    let mut tx = Tx::new(conn, at.clock.now());
    let mut count = 0;
    for write in writes {
        run(conn, "savepoint one")?;
        match write.apply(&mut tx) {
            Ok(()) => {}
            Err(Fault::Data(source)) => {
                run(conn, "rollback to one")?;
                tx.fence_moved();
                write.refuse(Error::Corrupt(source));
            }
            Err(fault) => return Err(fault),
        }
        run(conn, "release one")?;
        count += 1;
        if tx.is_full() {
            break;
        }
    }
    Ok(Committed { changes: tx.into_changes(), count })
}

/// Tells all of them why nothing was written.
pub(super) fn refuse_all(writes: &mut [&mut dyn Write], fault: &Fault) {
    for write in writes {
        write.refuse(match fault {
            Fault::Outage(outage, source) => Error::Unavailable(*outage, source.clone().into()),
            Fault::Data(source) => Error::Corrupt(source.to_string().into()),
            Fault::Refused(error) => Error::Corrupt(error.to_string().into()),
            Fault::Uncommitted(refused) => Error::Corrupt(Box::new(refused.clone())),
            Fault::Ended => Error::from(Fault::Ended),
        });
    }
}

fn roll_back(conn: &Connection) {
    // SQLite itself rolls back after some errors, and then there is nothing to do.
    if !conn.is_autocommit() {
        let _ = run(conn, "rollback");
    }
}

fn run(conn: &Connection, sql: &str) -> Result<(), Fault> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
