//! The checker: compares what step bodies did with what the store says.
//!
//! Owns: the promises that a crash must not break, each as a [`Breach`]. Reads the store through
//! the library only, and assumes nothing about how the victims ended.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use onward::limits::PAGE_ROWS_DEFAULT;
use onward::{Entry, Onward, Query, Record, Run, RunId, RunState, StepKey};

use crate::bank::{self, Ledger};
use crate::company;
use crate::effect::{Effect, Times};
use crate::flow::{Input, Output, is_expected};
use crate::saga::{self, SAGA};

/// The store at one moment: every run with its history.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The runs.
    pub runs: Vec<(Run, Vec<Record>)>,
    /// The victim's own tables.
    pub ledger: Ledger,
    /// The step keys that are not free.
    pub keys: Vec<StepKey>,
}

impl Snapshot {
    /// Reads all runs and their histories.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn read(onward: &Onward) -> Result<Self, Box<dyn Error>> {
        let mut runs = Vec::new();
        let mut query = Query::default();
        loop {
            let page = onward.list(query.clone()).await?;
            query.before = page.runs.last().map(|run| run.id);
            for run in page.runs {
                let history = onward.run(run.id).history().await?;
                runs.push((run, history));
            }
            if !page.more {
                break;
            }
        }
        let ledger = onward.store().sqlite_file().map(Ledger::read).transpose()?;
        let keys = read_keys(onward).await?;
        Ok(Self { runs, ledger: ledger.unwrap_or_default(), keys })
    }

    fn records(&self) -> impl Iterator<Item = (String, &Record)> {
        self.runs.iter().flat_map(|(run, history)| {
            history.iter().map(|record| (format!("{}/{}", run.id, record.step), record))
        })
    }
}

async fn read_keys(onward: &Onward) -> Result<Vec<StepKey>, onward::Error> {
    let mut keys: Vec<StepKey> = Vec::new();
    loop {
        let after = keys.last().map(|key| key.key.clone());
        let page = onward.step_keys(after, PAGE_ROWS_DEFAULT).await?;
        assert!(page.unreadable.is_empty(), "{:?} cannot be read", page.unreadable);
        keys.extend(page.keys);
        if !page.more {
            return Ok(keys);
        }
    }
}

/// All that is known when the last victim is gone.
#[derive(Debug, Default)]
pub struct Story {
    /// The runs that were started, each with the key in its input.
    pub wanted: Vec<Input>,
    /// What the bodies did.
    pub effects: Vec<Effect>,
    /// The store just before each generation of the victim began.
    pub before: BTreeMap<u32, Snapshot>,
    /// The store at the end.
    pub last: Snapshot,
}

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A key has no run.
    Lost(String),
    /// A key has more runs than it goes on as, or runs that do not follow each other.
    Split(String),
    /// A run did not complete.
    NotCompleted(String, RunState),
    /// A run completed with an output that its steps cannot give.
    WrongOutput(String, String),
    /// A step has more than one final record.
    EndedTwice(String),
    /// A step has a result though its body never began.
    Unworked(String),
    /// A record that was seen is gone or changed.
    Changed(String, u64),
    /// A record of an attempt follows one of a later attempt.
    WroteLate(String, u64),
    /// A body began again though the store had its record when that process started.
    RanAgain(String, u32),
    /// A body that may begin once began again.
    BeganTwice(String, u32),
    /// A body was told another step id than the run of its key has.
    OtherId(String, String),
    /// A transfer was applied so often, and not once for its record.
    Applied(String, usize),
    /// An account does not hold what the transfers say.
    Unbalanced(i64),
    /// A payment of a saga was paid back so often, and not once.
    Refunded(String, usize),
    /// A saga did not turn back as it must.
    NotUndone(String),
    /// An order has no run, or a run no order.
    Alone(String),
    /// So many letters came to a mailbox, and so many were taken.
    Letters(String, u64, u64),
    /// A run has not each of its children once, completed.
    Children(String),
    /// A run has another result than the one that is kept with its step's key.
    OtherResult(String, String),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Every promise that the story breaks.
pub fn check(story: &Story) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let chains = chains(&story.last);
    for input in &story.wanted {
        breaches.extend(check_key(input, chains.get(input.key.as_str())));
    }
    for (run, history) in &story.last.runs {
        breaches.extend(check_history(run, history));
    }
    breaches.extend(check_unworked(story));
    for before in story.before.values() {
        breaches.extend(check_kept(before, &story.last));
        breaches.extend(bank::check(before));
    }
    breaches.extend(bank::check(&story.last));
    breaches.extend(saga::check(&story.last));
    breaches.extend(company::check(story));
    breaches.extend(check_bodies(story));
    breaches.extend(check_ids(story, &chains));
    breaches
}

/// The records of `before` that `after` lacks or has otherwise, and those of `after` that were
/// written late: under an attempt that was over at the time of `before`.
pub fn check_fenced(before: &Snapshot, after: &Snapshot) -> Vec<Breach> {
    let mut breaches = check_kept(before, after);
    for (run, history) in &before.runs {
        let Some((_, later)) = after.runs.iter().find(|(other, _)| other.id == run.id) else {
            continue;
        };
        let known: BTreeSet<u64> = history.iter().map(|record| record.seq).collect();
        let is_over = |record: &&Record| {
            record.attempt < run.attempt || (record.attempt == run.attempt && run.worker.is_none())
        };
        let late = later.iter().filter(|record| !known.contains(&record.seq)).filter(is_over);
        breaches.extend(late.map(|record| Breach::WroteLate(run.id.to_string(), record.seq)));
    }
    breaches
}

/// The runs of each key.
fn chains(last: &Snapshot) -> BTreeMap<&str, Vec<&Run>> {
    let mut chains: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for (run, _) in &last.runs {
        if let Some(key) = &run.key {
            chains.entry(key).or_default().push(run);
        }
    }
    chains
}

fn check_key(input: &Input, chain: Option<&Vec<&Run>>) -> Vec<Breach> {
    let key = input.key.clone();
    let Some(chain) = chain else {
        return vec![Breach::Lost(key)];
    };
    if key.starts_with(SAGA.name()) {
        // How it ends is looked at with what it undid.
        return if chain.len() == 1 { Vec::new() } else { vec![Breach::Split(key)] };
    }
    if let Some(run) = chain.iter().find(|run| run.state != RunState::Completed) {
        return vec![Breach::NotCompleted(key, run.state)];
    }
    let laps = if key.starts_with("relay") { input.laps } else { 0 };
    let links = chain.iter().filter(|run| run.continued_as.is_some()).count();
    let ends: Vec<_> = chain.iter().filter(|run| run.continued_as.is_none()).collect();
    let [end] = ends.as_slice() else {
        return vec![Breach::Split(key)];
    };
    if links != laps as usize {
        return vec![Breach::Split(key)];
    }
    let output = end.output.as_ref().map(|json| json.as_str().to_owned()).unwrap_or_default();
    match serde_json::from_str::<Output>(&output) {
        Ok(read) if is_expected(input, &read) => Vec::new(),
        _ => vec![Breach::WrongOutput(key, output)],
    }
}

fn check_history(run: &Run, history: &[Record]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut ended = BTreeSet::new();
    let mut attempt = 0;
    for record in history {
        let is_final = record.entry.kind().is_final() && record.voided_at.is_none();
        if is_final && !ended.insert(&record.step) {
            breaches.push(Breach::EndedTwice(format!("{}/{}", run.id, record.step)));
        }
        if record.attempt < attempt {
            breaches.push(Breach::WroteLate(run.id.to_string(), record.seq));
        }
        attempt = attempt.max(record.attempt);
    }
    breaches
}

fn check_unworked(story: &Story) -> Vec<Breach> {
    let began: BTreeSet<&str> = story.effects.iter().map(|e| e.step_id.as_str()).collect();
    let done = story.last.records().filter(|(_, record)| matches!(record.entry, Entry::Done(_)));
    // That a run turned back has no body.
    let is_own = |step: &str| step != "$undo" && !company::is_no_own_work(step);
    done.filter(|(id, record)| is_own(&record.step) && !began.contains(id.as_str()))
        .map(|(id, _)| Breach::Unworked(id))
        .collect()
}

fn check_kept(before: &Snapshot, after: &Snapshot) -> Vec<Breach> {
    let kept: BTreeMap<(String, u64), &Record> =
        after.records().map(|(id, record)| ((id, record.seq), record)).collect();
    let seen = before.records().map(|(id, record)| ((id, record.seq), record));
    seen.filter(|(place, record)| kept.get(place) != Some(record))
        .map(|((id, seq), _)| Breach::Changed(id, seq))
        .collect()
}

/// Bodies that began though the store had their record, or once too often.
fn check_bodies(story: &Story) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let settled: BTreeMap<u32, BTreeMap<String, Vec<&Record>>> =
        story.before.iter().map(|(generation, before)| (*generation, by_step(before))).collect();
    let mut once = BTreeSet::new();
    for effect in &story.effects {
        let records = settled.get(&effect.generation).and_then(|steps| steps.get(&effect.step_id));
        if records.into_iter().flatten().any(|record| rules_out(record, effect)) {
            breaches.push(Breach::RanAgain(effect.step_id.clone(), effect.generation));
        }
        let place = (&effect.step_id, effect.try_number);
        if effect.times == Times::AtMostOnce && !once.insert(place) {
            breaches.push(Breach::BeganTwice(effect.step_id.clone(), effect.generation));
        }
    }
    breaches
}

fn by_step(snapshot: &Snapshot) -> BTreeMap<String, Vec<&Record>> {
    let mut steps: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for (id, record) in snapshot.records() {
        steps.entry(id).or_default().push(record);
    }
    steps
}

/// Whether a body that begins after this record was visible breaks a promise.
fn rules_out(record: &Record, effect: &Effect) -> bool {
    match record.entry {
        Entry::TryFailed { .. } => effect.try_number <= record.try_number,
        Entry::Began => effect.try_number == record.try_number,
        _ => true,
    }
}

fn check_ids(story: &Story, chains: &BTreeMap<&str, Vec<&Run>>) -> Vec<Breach> {
    let mut breaches = BTreeMap::new();
    let parents: BTreeMap<String, RunId> = (story.last.runs.iter())
        .filter_map(|(run, _)| Some((run.id.to_string(), run.parent.as_ref()?.run)))
        .collect();
    for effect in &story.effects {
        let chain = chains.get(effect.key.as_str()).map(Vec::as_slice).unwrap_or_default();
        // A child works under the key of its parent.
        let parent = parents.get(&effect.run).map(ToString::to_string);
        let run = parent.as_ref().unwrap_or(&effect.run);
        let is_of_key = chain.iter().any(|of_key| of_key.id.to_string() == *run);
        let is_of_run = effect.step_id.strip_prefix(effect.run.as_str());
        let is_shared = effect.step_id.starts_with(company::OF_KEY);
        if !is_of_key || !(is_shared || is_of_run.is_some_and(|rest| rest.starts_with('/'))) {
            let breach = Breach::OtherId(effect.key.clone(), effect.step_id.clone());
            breaches.insert(effect.step_id.clone(), breach);
        }
    }
    breaches.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onward::{Json, Timestamp, WorkerId};

    const KEY: &str = "once-0-1";

    fn run() -> Run {
        let id = RunId::from_u128(7);
        let input = Json::stored("{}");
        let mut run = Run::fresh(id, "once".to_owned(), input, Timestamp::from_millis(0));
        run.key = Some(KEY.to_owned());
        run.state = RunState::Completed;
        run.attempt = 2;
        run.output = Some(Json::stored(r#"{"total":3,"way":"sent"}"#));
        run
    }

    fn record(seq: u64, step: &str, entry: Entry) -> Record {
        Record::new(seq, step, entry, Timestamp::from_millis(0))
    }

    fn done(seq: u64, step: &str) -> Record {
        record(seq, step, Entry::Done(Json::stored("null")))
    }

    fn effect(generation: u32, step: &str, times: Times) -> Effect {
        let run = RunId::from_u128(7).to_string();
        let step_id = format!("{run}/{step}");
        Effect {
            generation,
            pid: 1,
            at_us: 0,
            order: 0,
            key: KEY.to_owned(),
            step_id,
            run,
            try_number: 1,
            times,
        }
    }

    /// A story in which the body of "note" ran twice, which is allowed: the first time was killed
    /// before its record.
    fn good() -> Story {
        let history = vec![
            done(1, "prepare"),
            record(2, "send", Entry::Began),
            done(3, "send"),
            done(4, "note"),
        ];
        let early = Snapshot { runs: vec![(run(), history[..3].to_vec())], ..Snapshot::default() };
        let effects = vec![
            effect(1, "prepare", Times::AtLeastOnce),
            effect(1, "send", Times::AtMostOnce),
            effect(1, "note", Times::AtLeastOnce),
            effect(2, "note", Times::AtLeastOnce),
        ];
        Story {
            wanted: vec![Input { key: KEY.to_owned(), number: 1, laps: 0 }],
            effects,
            before: BTreeMap::from([(1, Snapshot::default()), (2, early)]),
            last: Snapshot { runs: vec![(run(), history)], ..Snapshot::default() },
        }
    }

    fn finds(tamper: impl FnOnce(&mut Story), wanted: fn(&Breach) -> bool) {
        let mut story = good();
        tamper(&mut story);
        let breaches = check(&story);
        assert!(breaches.iter().any(wanted), "found only {breaches:?}");
    }

    #[test]
    fn good_story_breaks_nothing() {
        assert_eq!(check(&good()), []);
    }

    #[test]
    fn missing_run_is_found() {
        finds(|story| story.last.runs.clear(), |b| matches!(b, Breach::Lost(_)));
    }

    #[test]
    fn second_run_of_a_key_is_found() {
        let mut second = run();
        second.id = RunId::from_u128(8);
        finds(
            |story| story.last.runs.push((second, Vec::new())),
            |b| matches!(b, Breach::Split(_)),
        );
    }

    #[test]
    fn unfinished_run_is_found() {
        finds(
            |story| story.last.runs[0].0.state = RunState::Waiting,
            |b| matches!(b, Breach::NotCompleted(_, RunState::Waiting)),
        );
    }

    #[test]
    fn wrong_output_is_found() {
        finds(
            |story| story.last.runs[0].0.output = Some(Json::stored(r#"{"total":4,"way":"sent"}"#)),
            |b| matches!(b, Breach::WrongOutput(..)),
        );
    }

    #[test]
    fn second_final_record_is_found() {
        finds(
            |story| story.last.runs[0].1.push(done(5, "note")),
            |b| matches!(b, Breach::EndedTwice(_)),
        );
    }

    #[test]
    fn result_without_a_body_is_found() {
        finds(|story| drop(story.effects.remove(0)), |b| matches!(b, Breach::Unworked(_)));
    }

    #[test]
    fn changed_record_is_found() {
        finds(
            |story| story.last.runs[0].1[0].entry = Entry::Done(Json::stored("1")),
            |b| matches!(b, Breach::Changed(_, 1)),
        );
    }

    #[test]
    fn record_of_an_earlier_attempt_after_a_later_one_is_found() {
        finds(
            |story| story.last.runs[0].1[0].attempt = 2,
            |b| matches!(b, Breach::WroteLate(_, 2)),
        );
    }

    #[test]
    fn body_of_a_recorded_step_is_found() {
        finds(
            |story| story.effects.push(effect(2, "prepare", Times::AtLeastOnce)),
            |b| matches!(b, Breach::RanAgain(_, 2)),
        );
    }

    #[test]
    fn body_of_a_recorded_try_is_found() {
        let failure = onward::Failure::new("no");
        let entry = Entry::TryFailed { failure, next_at: Timestamp::from_millis(0) };
        let failed = record(9, "note", entry);
        finds(
            |story| {
                for snapshot in story.before.values_mut().chain([&mut story.last]) {
                    snapshot.runs.iter_mut().for_each(|(_, history)| history.push(failed.clone()));
                }
            },
            |b| matches!(b, Breach::RanAgain(_, 2)),
        );
    }

    #[test]
    fn second_begin_of_an_at_most_once_body_is_found() {
        finds(
            |story| story.effects.push(effect(1, "send", Times::AtMostOnce)),
            |b| matches!(b, Breach::BeganTwice(..)),
        );
    }

    #[test]
    fn other_step_id_is_found() {
        finds(
            |story| {
                let run = RunId::from_u128(8).to_string();
                story.effects[0].step_id = format!("{run}/prepare");
                story.effects[0].run = run;
            },
            |b| matches!(b, Breach::OtherId(..)),
        );
    }

    #[test]
    fn late_record_of_a_lost_attempt_is_found() {
        let mut held = run();
        held.state = RunState::Running;
        held.worker = Some(WorkerId::from_u128(1));
        let before = Snapshot {
            runs: vec![(held.clone(), vec![done(1, "prepare")])],
            ..Snapshot::default()
        };
        let late = vec![done(1, "prepare"), done(2, "send")];
        let after = Snapshot { runs: vec![(held, late)], ..Snapshot::default() };
        assert_eq!(check_fenced(&before, &before), []);
        let breaches = check_fenced(&before, &after);
        assert!(matches!(breaches.as_slice(), [Breach::WroteLate(_, 2)]), "{breaches:?}");
    }
}
