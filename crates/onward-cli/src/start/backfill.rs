//! `onward start --from`: a run for each line of a file.
//!
//! Owns: the reading thread, the interrupt, and the report of refused lines. The library starts
//! the runs, in batches and by key; interrupting it and doing it again gives no duplicate.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use futures_core::Stream;
use onward::limits::REFUSALS_KEPT_MAX;
use onward::{Onward, StartedMany, Workflow};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::lines::{BadLine, Item, Lines};
use super::{StartArgs, open_for_start, sent, with_options};
use crate::args::Global;
use crate::output::{self, Format};
use crate::place::Place;
use crate::problem::{Exit, Problem, print_error, print_note};
use crate::progress::Progress;
use crate::text;

/// Items that are read ahead of the batch that is being started: enough that reading and writing
/// overlap, few enough that items of 2 MiB stay within 64 MiB.
const READ_AHEAD: usize = 32;

pub(super) async fn execute(
    args: &StartArgs,
    from: &Path,
    global: &Global,
) -> Result<Exit, Problem> {
    if global.output == Format::Ids {
        let why = "a backfill does not list its ids; give it a --tag and list those runs";
        return Err(Problem::Usage(why.to_owned()));
    }
    let Source { reader, bytes } = Source::open(from)?;
    let lines = Lines::new(reader, args.key_field.clone());
    if args.key_field.is_none() {
        print_note(&"without --key-field, doing this again starts every line again");
    }
    let place = open_for_start(global).await?;
    let shared = Arc::new(Mutex::new(Ledger::default()));
    let (send, items) = mpsc::channel(READ_AHEAD);
    let reading = Arc::clone(&shared);
    // A thread of its own, not the runtime's: a read of stdin cannot be interrupted, and must not
    // keep the command from ending.
    thread::spawn(move || read(lines, &send, &reading));
    let progress = Progress::share(bytes);
    let started = match &place {
        Place::Store(onward) => start(args, onward, items, (progress, &shared)).await?,
        Place::Server(_) => sent::start(args, &place, items, (progress, &shared)).await?,
    };
    let ledger = std::mem::take(&mut *lock(&shared));
    report(started, ledger, global.output)
}

async fn start(
    args: &StartArgs,
    onward: &Onward,
    items: mpsc::Receiver<Item>,
    (mut progress, shared): (Progress, &Arc<Mutex<Ledger>>),
) -> Result<StartedMany, Problem> {
    let workflow = Workflow::<Item, Value>::of_name(args.name.as_str());
    let noted = Arc::clone(shared);
    let stop = Box::pin(interrupted(Arc::clone(shared)));
    let items = Items { items, stop, stopped: false };
    let start = onward.start_stream(workflow, items);
    let start = with_options!(start, &args.options).on_progress(move |at| {
        let (bad, bytes_read) = lock(&noted).done_with(at.items, at.refused);
        let (started, existing) = (at.started, at.existing);
        let refused = at.refused + bad;
        let message = format!("{started} started, {existing} existing, {refused} refused");
        progress.set(bytes_read, message);
    });
    match &args.key_field {
        Some(_) => Ok(start.key(|item: &Item| item.key.clone()).await?),
        None => Ok(start.await?),
    }
}

/// Where the lines come from.
struct Source {
    reader: Box<dyn BufRead + Send>,
    /// How long it is, where that is known.
    bytes: Option<u64>,
}

impl Source {
    fn open(from: &Path) -> Result<Self, Problem> {
        if from == Path::new("-") {
            return Ok(Self { reader: Box::new(BufReader::new(std::io::stdin())), bytes: None });
        }
        match File::open(from) {
            Ok(file) => {
                // A pipe has no length, and no harm is done without one.
                let bytes = file.metadata().ok().map(|file| file.len()).filter(|bytes| *bytes > 0);
                Ok(Self { reader: Box::new(BufReader::new(file)), bytes })
            }
            Err(error) => Err(Problem::Usage(format!("cannot read {}: {error}", from.display()))),
        }
    }
}

/// Reads until the end, or until nobody takes the items any more.
fn read(mut lines: Lines<impl BufRead>, send: &mpsc::Sender<Item>, shared: &Mutex<Ledger>) {
    loop {
        match lines.next() {
            Ok(Some(Ok(item))) => {
                lock(shared).sent(item.line, lines.bytes_read());
                if send.blocking_send(item).is_err() {
                    return;
                }
            }
            Ok(Some(Err(bad))) => lock(shared).refuse(bad),
            Ok(None) => return,
            Err(error) => return lock(shared).cut_short = Some(format!("cannot read on: {error}")),
        }
    }
}

/// Resolves at Ctrl-C. The batch under way is still started, and then the command ends.
pub(super) async fn interrupted(shared: Arc<Mutex<Ledger>>) {
    match tokio::signal::ctrl_c().await {
        Ok(()) => lock(&shared).cut_short = Some("interrupted".to_owned()),
        Err(_) => std::future::pending().await,
    }
}

/// The items that are read, until the end or the interrupt.
struct Items<F> {
    items: mpsc::Receiver<Item>,
    stop: Pin<Box<F>>,
    /// A stream that was stopped is asked once more, after its last batch.
    stopped: bool,
}

impl<F: Future<Output = ()>> Stream for Items<F> {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if self.stopped || self.stop.as_mut().poll(cx).is_ready() {
            self.stopped = true;
            return Poll::Ready(None);
        }
        self.items.poll_recv(cx)
    }
}

/// What is known of lines: which were refused, and which line an item was.
#[derive(Default)]
pub(super) struct Ledger {
    bad: u64,
    /// The first of the bad lines.
    bad_lines: Vec<BadLine>,
    /// Why reading ended before the end.
    pub(super) cut_short: Option<String>,
    bytes_read: u64,
    sent: u64,
    /// The item and line of what is sent and not yet done with.
    under_way: VecDeque<(u64, u64)>,
    /// Those of batches in which the library refused something, which it names at the end. It
    /// names at most `REFUSALS_KEPT_MAX`, so this many batches are kept and no more.
    kept: Vec<(u64, u64)>,
    kept_batches: usize,
    refused: u64,
}

impl Ledger {
    fn sent(&mut self, line: u64, bytes_read: u64) {
        self.bytes_read = bytes_read;
        self.under_way.push_back((self.sent, line));
        self.sent += 1;
    }

    pub(super) fn refuse(&mut self, bad: BadLine) {
        self.bad += 1;
        if self.bad_lines.len() < REFUSALS_KEPT_MAX {
            self.bad_lines.push(bad);
        }
    }

    /// The library is done with the first `items` items, of which it refused `refused`. Says how
    /// many lines were bad so far, and how many bytes were read.
    pub(super) fn done_with(&mut self, items: u64, refused: u64) -> (u64, u64) {
        let keep = refused > self.refused && self.kept_batches < REFUSALS_KEPT_MAX;
        self.refused = refused;
        self.kept_batches += usize::from(keep);
        while let Some(place) = self.under_way.pop_front_if(|(item, _)| *item < items) {
            if keep {
                self.kept.push(place);
            }
        }
        (self.bad, self.bytes_read)
    }

    fn line_of(&self, item: u64) -> Option<u64> {
        let place = self.kept.binary_search_by_key(&item, |(item, _)| *item).ok()?;
        Some(self.kept[place].1)
    }
}

/// A backfill as it is printed with `-o json`.
#[derive(Serialize)]
struct Report {
    started: u64,
    existing: u64,
    refused: u64,
    complete: bool,
}

fn report(started: StartedMany, ledger: Ledger, format: Format) -> Result<Exit, Problem> {
    print_refusals(&started, &ledger);
    if let Some(why) = &ledger.cut_short {
        print_error(&format!("{why}; what was started stays. Run the same command to go on."));
    }
    let report = Report {
        started: started.started,
        existing: started.existing,
        refused: started.refused + ledger.bad,
        complete: ledger.cut_short.is_none(),
    };
    let good = report.refused == 0 && report.complete;
    match format {
        Format::Json => output::print_json(&report)?,
        _ => {
            let Report { started, existing, refused, .. } = report;
            let started = text::count(started, "run");
            writeln!(
                output::stdout(),
                "started {started}, {existing} existing, {refused} refused"
            )?;
        }
    }
    Ok(if good { Exit::Ok } else { Exit::No })
}

fn print_refusals(started: &StartedMany, ledger: &Ledger) {
    let theirs = started.refusals.iter().map(|refusal| {
        let line = ledger.line_of(refusal.item).unwrap_or_default();
        (line, refusal.error.to_string())
    });
    let ours = ledger.bad_lines.iter().map(|bad| (bad.line, bad.why.clone()));
    let mut all: Vec<_> = theirs.chain(ours).collect();
    all.sort();
    for (line, why) in &all {
        print_error(&format!("line {line}: {why}"));
    }
    let silent = (started.refused + ledger.bad).saturating_sub(all.len() as u64);
    if silent > 0 {
        print_error(&format!("and {} more", text::count(silent, "refused line")));
    }
}

pub(super) fn lock(shared: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_item_is_named_by_its_line_in_bounded_memory() {
        let mut ledger = Ledger::default();
        for line in 1..=3_000 {
            // Every third line is bad, so that items and lines drift apart.
            match line % 3 {
                0 => ledger.refuse(BadLine { line, why: String::new() }),
                _ => ledger.sent(line, 0),
            }
        }
        ledger.done_with(500, 0);
        ledger.done_with(1_000, 1);
        ledger.done_with(1_500, 1);
        assert_eq!(ledger.line_of(501), Some(752));
        assert_eq!(ledger.kept.len(), 500);
        assert_eq!(ledger.bad_lines.len(), REFUSALS_KEPT_MAX);
        assert_eq!(ledger.bad, 1_000);
    }
}
