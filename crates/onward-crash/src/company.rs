//! Runs in company: signals that are sent to them, children that they start, and keys that they share.
//!
//! Owns: what a crash must not break of these: each letter once and in order, each child once, the work
//! of a key once. Reads the story only.

use std::collections::{BTreeMap, BTreeSet};

use onward::{Entry, KeyState, Run, RunState, StepKey};

use crate::check::{Breach, Snapshot, Story};
use crate::flow::{FAMILY, LETTERS, MAILBOX, PUPILS};

/// What a step id begins with that belongs to a key and to no run.
pub const OF_KEY: &str = "key/";

/// Letters that came more than once, children that are missing or too many, and keys whose work was
/// done again or whose result is not everybody's.
pub fn check(story: &Story) -> Vec<Breach> {
    let mut breaches = check_letters(&story.last);
    breaches.extend(check_children(&story.last));
    breaches.extend(check_work(story));
    breaches.extend(check_results(&story.last));
    breaches
}

/// Whether a step is the engine's own, or was done under a key by whoever had it.
pub fn is_no_own_work(step: &str) -> bool {
    step.starts_with('$') || step.contains("#@")
}

fn key_of(run: &Run) -> String {
    run.key.clone().unwrap_or_default()
}

fn check_letters(last: &Snapshot) -> Vec<Breach> {
    let boxes = last.runs.iter().filter(|(run, _)| run.workflow == MAILBOX.name());
    let counted = boxes.map(|(run, history)| {
        let taken = history.iter().filter(|record| matches!(record.entry, Entry::Arrived(_)));
        (run, run.signals, taken.count() as u64)
    });
    let wrong = counted.filter(|(_, came, taken)| (*came, *taken) != (LETTERS, LETTERS));
    wrong.map(|(run, came, taken)| Breach::Letters(key_of(run), came, taken)).collect()
}

fn check_children(last: &Snapshot) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (run, _) in last.runs.iter().filter(|(run, _)| run.workflow == FAMILY.name()) {
        let children = last.runs.iter().map(|(child, _)| child);
        let children =
            children.filter(|child| child.parent.as_ref().map(|p| p.run) == Some(run.id));
        let done = children.clone().filter(|child| child.state == RunState::Completed);
        if (children.count() as u64, done.count() as u64) != (PUPILS, PUPILS) {
            breaches.push(Breach::Children(key_of(run)));
        }
    }
    breaches
}

/// Work under a key that was begun twice in one life of the victim, or after it was known to be done.
fn check_work(story: &Story) -> Vec<Breach> {
    let mut begun = BTreeSet::new();
    let mut breaches = Vec::new();
    for effect in story.effects.iter().filter(|effect| effect.step_id.starts_with(OF_KEY)) {
        let before = story.before.get(&effect.generation);
        let known = before.is_some_and(|before| before.keys.iter().any(|key| is_done(key, effect)));
        if known || !begun.insert((&effect.step_id, effect.generation)) {
            breaches.push(Breach::RanAgain(effect.step_id.clone(), effect.generation));
        }
    }
    breaches
}

fn is_done(key: &StepKey, effect: &crate::effect::Effect) -> bool {
    key.state == KeyState::Done && effect.step_id.strip_prefix(OF_KEY) == Some(&key.key)
}

/// Records of a step with a key that differ from what is kept with it.
fn check_results(last: &Snapshot) -> Vec<Breach> {
    let kept: BTreeMap<&str, _> =
        last.keys.iter().map(|key| (key.key.as_str(), key.result.as_ref())).collect();
    let mut breaches = Vec::new();
    for (run, history) in &last.runs {
        for record in history {
            let Some((_, key)) = record.step.split_once("#@") else { continue };
            let Entry::Done(result) = &record.entry else { continue };
            if kept.get(key) != Some(&Some(result)) {
                breaches.push(Breach::OtherResult(key_of(run), key.to_owned()));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Effect, Times};
    use onward::store::KeyHolder;
    use onward::{Json, Parent, Record, RunId, Timestamp};

    const AT: Timestamp = Timestamp::from_millis(0);

    fn run(number: u128, workflow: &str) -> Run {
        let mut run = Run::fresh(RunId::from_u128(number), workflow.to_owned(), json(0), AT);
        run.state = RunState::Completed;
        run.key = Some(format!("{workflow}-0-{number}"));
        run
    }

    fn json(value: u64) -> Json {
        Json::of(&value).unwrap()
    }

    fn record(seq: u64, step: &str, entry: Entry) -> Record {
        Record::new(seq, step, entry, AT)
    }

    fn step_key() -> StepKey {
        StepKey {
            key: "stamp".to_owned(),
            state: KeyState::Done,
            holder: KeyHolder { id: "run/step".to_owned(), attempt: 1, caller: "here".to_owned() },
            token: 1,
            fingerprint: None,
            result: Some(json(7)),
            failure: None,
            taken_at: AT,
            settled_at: Some(AT),
            until: None,
            duplicates: 1,
        }
    }

    fn effect(generation: u32) -> Effect {
        Effect {
            generation,
            pid: 1,
            at_us: 0,
            order: 0,
            key: "shared-0-3".to_owned(),
            step_id: "key/stamp".to_owned(),
            run: RunId::from_u128(3).to_string(),
            try_number: 1,
            times: Times::AtLeastOnce,
        }
    }

    /// A story in which the work of the key was done twice, which is allowed: the first time was
    /// killed before the key was settled.
    fn good() -> Story {
        let mut mailbox = run(1, MAILBOX.name());
        mailbox.signals = LETTERS;
        let letters = (1..=LETTERS)
            .map(|no| record(no, &format!("$signal/letter#{no}"), Entry::Arrived(json(no))));
        let family = run(2, FAMILY.name());
        let mut runs = vec![(mailbox, letters.collect()), (family.clone(), Vec::new())];
        for number in 0..PUPILS {
            let mut pupil = run(100 + u128::from(number), "pupil");
            let step = format!("$child/pupil#{number}");
            pupil.parent = Some(Parent { run: family.id, step, detached: false });
            runs.push((pupil, Vec::new()));
        }
        for number in [3, 4] {
            let stamped = record(1, "stamp#@stamp", Entry::Done(json(7)));
            runs.push((run(number, "shared"), vec![stamped]));
        }
        let last = Snapshot { runs, keys: vec![step_key()], ..Snapshot::default() };
        let before = BTreeMap::from([(1, Snapshot::default()), (2, Snapshot::default())]);
        Story { effects: vec![effect(1), effect(2)], before, last, ..Story::default() }
    }

    fn finds(tamper: impl FnOnce(&mut Story), wanted: fn(&Breach) -> bool) {
        let mut story = good();
        tamper(&mut story);
        let breaches = check(&story);
        assert!(breaches.iter().any(wanted), "found only {breaches:?}");
    }

    #[test]
    fn good_company_breaks_nothing() {
        assert_eq!(check(&good()), []);
        assert_eq!(check(&Story::default()), []);
    }

    #[test]
    fn letter_that_came_twice_is_found() {
        let twice = |story: &mut Story| story.last.runs[0].0.signals += 1;
        finds(twice, |breach| matches!(breach, Breach::Letters(..)));
    }

    #[test]
    fn letter_that_was_not_taken_is_found() {
        let lost = |story: &mut Story| drop(story.last.runs[0].1.pop());
        finds(lost, |breach| matches!(breach, Breach::Letters(..)));
    }

    #[test]
    fn missing_child_is_found() {
        let lost = |story: &mut Story| drop(story.last.runs.remove(2));
        finds(lost, |breach| matches!(breach, Breach::Children(_)));
    }

    #[test]
    fn second_child_of_a_step_is_found() {
        let again = |story: &mut Story| {
            let mut second = story.last.runs[2].clone();
            second.0.id = RunId::from_u128(999);
            story.last.runs.push(second);
        };
        finds(again, |breach| matches!(breach, Breach::Children(_)));
    }

    #[test]
    fn child_that_did_not_end_is_found() {
        let open = |story: &mut Story| story.last.runs[2].0.state = RunState::Waiting;
        finds(open, |breach| matches!(breach, Breach::Children(_)));
    }

    #[test]
    fn work_of_a_key_that_was_done_before_is_found() {
        let known = |story: &mut Story| {
            let keys = vec![step_key()];
            story.before.insert(2, Snapshot { keys, ..Snapshot::default() });
        };
        finds(known, |breach| matches!(breach, Breach::RanAgain(_, 2)));
    }

    #[test]
    fn work_of_a_key_twice_in_one_life_is_found() {
        let again = |story: &mut Story| story.effects.push(effect(2));
        finds(again, |breach| matches!(breach, Breach::RanAgain(_, 2)));
    }

    #[test]
    fn result_that_is_not_the_one_of_the_key_is_found() {
        let other = |story: &mut Story| {
            let shared = story.last.runs.last_mut().unwrap();
            shared.1[0].entry = Entry::Done(json(8));
        };
        finds(other, |breach| matches!(breach, Breach::OtherResult(..)));
    }
}
