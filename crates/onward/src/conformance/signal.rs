//! Signals: kept in order, once per key, never missed, whatever state they meet a run in.

use super::stage::*;
use crate::limits::{INBOX_BYTES_MAX, SIGNAL_KEYS_CARRIED_MAX, SIGNALS_BYTES_MAX, SIGNALS_MAX};
use crate::store::{
    Conflict, End, Error, Inbox, InboxRest, NewSignal, Settle, Settled, Signal, Signalled,
};
use crate::{Entry, Json, RunId, RunState, Waits};

/// A signal to send, with a key of its own.
pub fn new_signal(run: RunId, name: &str, value: i64) -> NewSignal {
    keyed_signal(run, name, value, &RunId::new().to_string())
}

fn keyed_signal(run: RunId, name: &str, value: i64, key: &str) -> NewSignal {
    let body = json(value);
    NewSignal {
        run,
        name: name.to_owned(),
        step: format!("$signal/{name}"),
        key: key.to_owned(),
        fingerprint: body.fingerprint(),
        body,
    }
}

/// The end of an attempt that waits for a signal.
fn awaiting(wakes_seen: u64) -> End {
    let waits_for = Waits::Signal { name: "go".to_owned() };
    End::Parked { wake_at: None, waits_for, wakes_seen }
}

async fn send(stage: &Stage, signal: NewSignal) -> Signalled {
    stage.store.signal(signal).await.unwrap()
}

async fn inbox(stage: &Stage, run: RunId, after: u64) -> Inbox {
    stage.other.inbox(run, after).await.unwrap()
}

fn values(signals: &[Signal]) -> Vec<i64> {
    signals.iter().map(|signal| signal.body.read().unwrap()).collect()
}

/// A signal is kept with its number, and the inbox gives what came after a number.
pub async fn signals_are_numbered_in_order(stage: &Stage) {
    let run = stage.start(new_run()).await;
    for (value, no) in [(10, 1), (20, 2), (30, 3)] {
        stage.pass(1);
        let sent = send(stage, new_signal(run, "go", value)).await;
        assert_eq!(sent, Signalled { no, was_there: false, at: stage.now() });
    }
    let all = inbox(stage, run, 0).await;
    assert_eq!((values(&all.signals), all.wakes), (vec![10, 20, 30], 3));
    assert_eq!(all.signals[2].recorded_as(), "$signal/go#3");
    assert_eq!(values(&inbox(stage, run, 2).await.signals), [30]);
    assert_eq!(stage.run(run).await.signals, 3);
}

/// The same signal again is known, also after it was taken and after the run has ended.
pub async fn signal_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let signal = keyed_signal(lease.run, "go", 1, "click-1");
    let first = send(stage, signal.clone()).await;
    stage.pass(5);
    let again = Signalled { was_there: true, ..first };
    let before = stage.snapshot().await;
    assert_eq!(send(stage, signal.clone()).await, again);
    stage.assert_unchanged(&before).await;
    let taken = entry(1, "$signal/go#1", Entry::Arrived(json(1)));
    stage.record(lease, vec![taken]).await.unwrap();
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    assert_eq!(send(stage, signal).await, again);
}

/// A key is the sender's word that it is the same signal: another value is refused, another name
/// is another signal.
pub async fn signal_key_with_another_value_is_refused(stage: &Stage) {
    let run = stage.start(new_run()).await;
    send(stage, keyed_signal(run, "go", 1, "click-1")).await;
    let other = stage.store.signal(keyed_signal(run, "go", 2, "click-1")).await;
    assert_conflict(other, Conflict::KeyInput { run });
    assert!(!send(stage, keyed_signal(run, "stop", 2, "click-1")).await.was_there);
}

/// A run that has ended takes no signal, and an unknown one is not found.
pub async fn signal_to_a_finished_run_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let before = stage.snapshot().await;
    let late = stage.store.signal(new_signal(lease.run, "go", 1)).await;
    assert_conflict(late, Conflict::Finished { run: lease.run });
    stage.assert_unchanged(&before).await;
    let unknown = stage.store.signal(new_signal(RunId::new(), "go", 1)).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
    assert!(matches!(stage.store.inbox(RunId::new(), 0).await, Err(Error::NotFound)));
}

/// A run that waits for a signal is queued by one; the claim brings it.
pub async fn signal_wakes_a_run_that_waits_for_one(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    assert_eq!(stage.settle(lease, awaiting(0)).await.unwrap(), Settled::AsSaid);
    assert_eq!(stage.state(lease.run).await, RunState::Waiting);
    stage.pass(5);
    send(stage, new_signal(lease.run, "go", 7)).await;
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.due_at, run.waits_for), (RunState::Queued, Some(stage.now()), None));
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(values(&claimed.signals), [7]);
}

/// A run that waits for a time, or for an operator, is not woken by a signal, and keeps it.
pub async fn signal_leaves_other_waits_alone(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [parked_until(Some(stage.in_ms(60_000)), 0), stuck(0)] {
        let lease = stage.running(&worker).await;
        stage.settle(lease, end).await.unwrap();
        let before = stage.run(lease.run).await;
        send(stage, new_signal(lease.run, "go", 7)).await;
        let after = stage.run(lease.run).await;
        assert_eq!((after.state, after.due_at), (before.state, before.due_at));
        assert_eq!((after.waits_for, after.wakes), (before.waits_for, before.wakes + 1));
    }
}

/// A signal that comes between the holder's look and its park is not slept over.
pub async fn signal_before_the_park_is_not_missed(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let seen = inbox(stage, lease.run, 0).await;
    send(stage, new_signal(lease.run, "go", 7)).await;
    assert_eq!(stage.settle(lease, awaiting(seen.wakes)).await.unwrap(), Settled::Queued);
    assert_eq!(values(&worker.take_whole(lease.run).await.signals), [7]);
}

/// Who has seen the inbox may park; a cancel that it shows as well is not slept over either.
pub async fn inbox_tells_marks_with_its_wakes(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    send(stage, new_signal(lease.run, "go", 7)).await;
    let seen = inbox(stage, lease.run, 0).await;
    assert!(!seen.cancel_asked && !seen.paused);
    assert_eq!(stage.settle(lease, awaiting(seen.wakes)).await.unwrap(), Settled::AsSaid);
    let lease = stage.running(&worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    let seen = inbox(stage, lease.run, 0).await;
    assert_eq!((seen.cancel_asked, seen.wakes), (true, 1));
}

/// A claim brings the signals that the history does not have, in the order in which they came.
pub async fn claim_brings_the_signals_not_taken(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    for value in [1, 2, 3] {
        send(stage, new_signal(lease.run, "go", value)).await;
    }
    let taken = entry(1, "$signal/go#2", Entry::Arrived(json(2)));
    let settle = Settle::new(vec![taken.clone()], End::Released);
    stage.store.settle(lease, settle).await.unwrap();
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(values(&claimed.signals), [1, 3]);
    assert_eq!(claimed.history[0].entry, taken.entry);
}

/// A run that goes on as another hands on what it has not taken.
pub async fn continuation_takes_the_signals_not_taken(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    for value in [1, 2, 3] {
        send(stage, new_signal(lease.run, "go", value)).await;
    }
    let taken = entry(1, "$signal/go#1", Entry::Arrived(json(1)));
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(0), undelivered: Vec::new() };
    stage.store.settle(lease, Settle::new(vec![taken], end)).await.unwrap();
    let claimed = worker.take_whole(next).await;
    assert_eq!(values(&claimed.signals), [2, 3]);
    let numbers: Vec<u64> = claimed.signals.iter().map(|signal| signal.no).collect();
    assert_eq!((numbers, claimed.run.signals), (vec![1, 2], 2));
    assert_eq!(send(stage, new_signal(next, "go", 4)).await.no, 3);
}

/// A signal with a sender's key that a run took is known to the run that goes on for it, and to the
/// next: repeated, it is not delivered again. As many are known as there is room for, the latest.
pub async fn continuation_knows_the_signals_taken(stage: &Stage) {
    let worker = stage.worker().await;
    let mut lease = stage.running(&worker).await;
    let paid = |run| keyed_signal(run, "paid", 7, "=webhook-991");
    send(stage, paid(lease.run)).await;
    send(stage, keyed_signal(lease.run, "paid", 8, "=webhook-992")).await;
    send(stage, new_signal(lease.run, "paid", 9)).await;
    let mut records = vec![entry(1, "$signal/paid#1", Entry::Arrived(json(7)))];
    for _ in 0..2 {
        let next = RunId::new();
        let end = End::Continued { run: next, input: json(0), undelivered: Vec::new() };
        stage.store.settle(lease, Settle::new(std::mem::take(&mut records), end)).await.unwrap();
        let claimed = worker.take_whole(next).await;
        assert_eq!(values(&claimed.signals), [8, 9], "they come once each");
        let numbers: Vec<u64> = claimed.signals.iter().map(|signal| signal.no).collect();
        assert_eq!((numbers, claimed.run.signals), (vec![2, 3], 3));
        assert!(send(stage, paid(next)).await.was_there, "a repeat");
        let other = stage.store.signal(keyed_signal(next, "paid", 5, "=webhook-991")).await;
        assert_conflict(other, Conflict::KeyInput { run: next });
        lease = claimed.lease;
    }
    let most = SIGNAL_KEYS_CARRIED_MAX as i64;
    for value in 1..=most {
        let no = send(stage, keyed_signal(lease.run, "ping", value, &format!("={value}"))).await.no;
        let step = format!("$signal/ping#{no}");
        records.push(entry(value as u64, &step, Entry::Arrived(json(value))));
    }
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(0), undelivered: Vec::new() };
    stage.store.settle(lease, Settle::new(records, end)).await.unwrap();
    assert_eq!(stage.run(next).await.signals, SIGNAL_KEYS_CARRIED_MAX as u64 + 2);
    assert_eq!(whole(stage, next).await.signals.len(), SIGNAL_KEYS_CARRIED_MAX + 2, "for a copy");
    assert!(send(stage, keyed_signal(next, "ping", 1, "=1")).await.was_there);
    assert!(!send(stage, paid(next)).await.was_there, "the oldest is forgotten");
}

/// A recorded signal may not have reached the function. The signals that the holder names go to the
/// next run as if they were not recorded: in order, once, and with their keys.
pub async fn continuation_takes_the_signals_not_delivered(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let keyed = |run, value: i64| keyed_signal(run, "go", value, &format!("=click-{value}"));
    for value in 1..=5 {
        send(stage, keyed(lease.run, value)).await;
    }
    let arrived = |seq, no: i64| entry(seq, &format!("$signal/go#{no}"), Entry::Arrived(json(no)));
    stage.record(lease, vec![arrived(1, 1), arrived(2, 2), arrived(3, 3)]).await.unwrap();
    let undelivered = ["$signal/go#2", "$signal/go#3", "$signal/go#4"].map(str::to_owned).to_vec();
    let next = RunId::new();
    let end = End::Continued { run: next, input: json(0), undelivered };
    // The last of them is recorded by the settle itself, and repeated after a lost answer.
    let settle = Settle::new(vec![arrived(4, 4)], end);
    super::lost_answer::repeated(stage, |store| {
        crate::store::Store::settle(store, lease, settle.clone())
    })
    .await;
    let claimed = worker.take_whole(next).await;
    assert_eq!(values(&claimed.signals), [2, 3, 4, 5]);
    for value in 1..=5 {
        assert!(send(stage, keyed(next, value)).await.was_there, "{value} is a repeat");
    }
    let voided: Vec<_> = stage.history(lease.run).await;
    let voided = voided.iter().filter(|record| record.voided_at.is_some());
    assert_eq!(voided.map(|record| record.seq).collect::<Vec<_>>(), [2, 3, 4]);
}

/// Signals that the engine sends, which are a child's end and a callback's answer, are only for the run
/// that asked for them. The next run would take them for those of its own child or callback.
pub async fn continuation_is_told_no_ends_of_children(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(super::child::child_of(lease, "$child/ship")).await;
    let held = worker.take(child).await;
    stage.settle(held, End::Completed(json(7))).await.unwrap();
    let answer = keyed_signal(lease.run, "$callback/1", 8, "=secret");
    send(stage, NewSignal { step: "$signal/%24callback/1".to_owned(), ..answer }).await;
    send(stage, new_signal(lease.run, "go", 9)).await;
    let next = RunId::new();
    stage
        .settle(lease, End::Continued { run: next, input: json(0), undelivered: Vec::new() })
        .await
        .unwrap();
    let names = |signals: &[Signal]| -> Vec<_> {
        signals.iter().map(|signal| signal.name.clone()).collect()
    };
    assert_eq!(names(&worker.take_whole(next).await.signals), ["go"]);
    assert_eq!(names(&whole(stage, next).await.signals), ["go"]);
}

/// A run takes a bounded number of signals; a repeat is known all the same.
pub async fn signals_of_a_run_are_bounded(stage: &Stage) {
    let run = stage.start(new_run()).await;
    let (mut whole, full) = (whole(stage, run).await, RunId::new());
    (whole.run.id, whole.run.signals) = (full, SIGNALS_MAX);
    let last = Signal::of(&keyed_signal(full, "go", 1, "last"), SIGNALS_MAX, stage.now());
    whole.signals = vec![last];
    let import = crate::store::Import { runs: vec![whole], dry_run: false };
    stage.store.portable().unwrap().import(import).await.unwrap();
    let more = stage.store.signal(new_signal(full, "go", 1)).await;
    assert_conflict(more, Conflict::SignalsFull { run: full });
    assert!(send(stage, keyed_signal(full, "go", 1, "last")).await.was_there);
}

/// A signal of so many bytes that no codec makes much shorter.
fn large_signal(run: RunId, name: &str, bytes: usize) -> NewSignal {
    let body = large(bytes);
    NewSignal { fingerprint: body.fingerprint(), body, ..new_signal(run, name, 0) }
}

fn large(bytes: usize) -> Json {
    Json::stored(format!("\"{}\"", noise(bytes)))
}

/// Text of letters that JSON need not escape, which repeats itself only where no codec looks so far back.
fn noise(bytes: usize) -> String {
    let words = (1_u64..).flat_map(|number| {
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB)).to_be_bytes()
    });
    let part: String = words.map(|byte| char::from(b'#' + byte % 57)).take(70_000).collect();
    let mut text = part.repeat(bytes.div_ceil(part.len()));
    text.truncate(bytes);
    text
}

/// The bytes of a payload of which four fill a page, with a little to spare. What is encrypted is stored as text,
/// which makes four bytes of three.
fn quarter_page(stage: &Stage) -> usize {
    let stored = INBOX_BYTES_MAX / 4 + 50_000;
    if stage.store.coded().is_some() { stored * 3 / 4 } else { stored }
}

/// A run takes a bounded number of bytes of signals; a small one may fit where a larger one does not, a repeat is
/// known all the same, and how a child ended is kept.
pub async fn signals_of_a_run_are_bounded_in_bytes(stage: &Stage) {
    const MIB: usize = 1024 * 1024;
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(super::child::child_of(lease, "$child/ship")).await;
    // What is encrypted is stored as text, which makes four bytes of three.
    let most =
        if stage.store.coded().is_some() { SIGNALS_BYTES_MAX * 3 / 4 } else { SIGNALS_BYTES_MAX };
    send(stage, large_signal(lease.run, "go", most - MIB / 2)).await;
    let larger = large_signal(lease.run, "go", MIB);
    let full = Conflict::SignalsFull { run: lease.run };
    assert_conflict(stage.store.signal(larger).await, full);
    let small = new_signal(lease.run, "go", 1);
    assert_eq!(send(stage, small.clone()).await.no, 2);
    let held = worker.take(child).await;
    stage.settle(held, End::Completed(large(MIB))).await.unwrap();
    assert_conflict(stage.store.signal(new_signal(lease.run, "go", 2)).await, full);
    assert!(send(stage, small).await.was_there);
    assert_eq!(stage.run(lease.run).await.signals, 3);
}

/// Signals up to the limit of bytes come to a claim, and to a look, in pages; the next look continues.
pub async fn inbox_comes_in_pages(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(new_run()).await;
    for _ in 0..5 {
        send(stage, large_signal(run, "go", quarter_page(stage))).await;
    }
    let claimed = worker.take_whole(run).await;
    let first = inbox(stage, run, 0).await;
    assert_eq!(first.rest, InboxRest::More);
    assert_eq!(claimed.signals, first.signals);
    let last = first.signals.last().unwrap().no;
    assert_eq!(claimed.signals_to, last);
    let bytes: usize = first.signals.iter().map(Signal::bytes).sum();
    let before = bytes - first.signals.last().unwrap().bytes();
    assert!(before <= INBOX_BYTES_MAX, "{before}");
    let rest = inbox(stage, run, last).await;
    assert_eq!(rest.rest, InboxRest::Nothing);
    let numbers = first.signals.iter().chain(&rest.signals).map(|signal| signal.no);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(rest.wakes, first.wakes);
}

/// Ends of children that are larger than `INBOX_BYTES_MAX` together come to a claim, and to a look, in pages.
pub async fn ends_of_children_come_in_pages(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let output = large(quarter_page(stage));
    for number in 0..5 {
        let child = super::child::child_of(lease, &format!("$child/ship-{number}"));
        let held = worker.take(stage.start(child).await).await;
        stage.settle(held, End::Completed(output.clone())).await.unwrap();
    }
    stage.settle(lease, End::Released).await.unwrap();
    let claimed = worker.take_whole(lease.run).await;
    let (mut after, mut all) = (claimed.signals_to, claimed.signals);
    let first = all.len();
    loop {
        let page = inbox(stage, lease.run, after).await;
        after = page.signals.last().map_or(after, |last| last.no);
        all.extend(page.signals);
        if page.rest == InboxRest::Nothing {
            break;
        }
    }
    assert!(first < 5, "{first}");
    assert_eq!(all.iter().map(|signal| signal.no).collect::<Vec<_>>(), (1..=5).collect::<Vec<_>>());
}

async fn whole(stage: &Stage, run: RunId) -> crate::store::WholeRun {
    let all = stage.store.portable().unwrap().export(None, 10).await.unwrap();
    all.into_iter().find(|whole| whole.run.id == run).unwrap()
}

/// What a signal carries may be any JSON text, and comes out as it went in.
pub async fn signal_carries_any_text(stage: &Stage) {
    let run = stage.start(new_run()).await;
    let body = Json::of("\u{0} ☃ {\"a\": 1}").unwrap();
    let signal = NewSignal { body: body.clone(), ..new_signal(run, "go", 0) };
    send(stage, signal).await;
    assert_eq!(inbox(stage, run, 0).await.signals[0].body, body);
}
