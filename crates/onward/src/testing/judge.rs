//! The judge: what a play says about its workflow.
//!
//! Owns: which effects count as repeated, and what two plays of one run must have in common. Never
//! plays.

use std::collections::{BTreeMap, BTreeSet};

use super::effects::{Effect, Place, happened, of_events};
use super::play::{Finish, Played};
use super::report::{Finding, step_of};
use super::trace::Event;
use crate::model::step_id;
use crate::{Code, Entry, Record, Run, Waits};

/// Effects of one name in one place.
type Group<'a> = ((&'a Place, &'a str), Vec<&'a Effect>);

/// What the effects of one play say.
pub(super) fn of_effects(played: &Played) -> Vec<Finding> {
    let effects = of_events(&played.events);
    let mut groups: BTreeMap<(&Place, &str), Vec<&Effect>> = BTreeMap::new();
    for effect in &effects {
        groups.entry((&effect.place, &effect.name)).or_default().push(effect);
    }
    let mut findings = Vec::new();
    for group in groups {
        findings.extend(repeated(&group, &effects));
        findings.extend(under_other_keys(&group));
    }
    findings.extend(under_one_key(&effects));
    findings
}

/// An effect without a key that two executions of its place had.
fn repeated(((place, name), group): &Group<'_>, all: &[Effect]) -> Option<Finding> {
    let bare = group.iter().filter(|effect| effect.key.is_none());
    let executions: BTreeSet<_> = bare.clone().map(|effect| effect.execution).collect();
    if executions.len() < 2 {
        return None;
    }
    let others = all.iter().filter(|other| other.place == **place && other.name != **name);
    let beside: BTreeSet<_> = others.map(|other| other.name.clone()).collect();
    Some(Finding::Repeated {
        effect: (*name).to_owned(),
        place: (*place).clone(),
        times: bare.count(),
        beside: beside.into_iter().collect(),
    })
}

/// An effect with keys, of which two executions had different ones. An execution that died on the
/// way had some of them, so the fullest one is compared with all together.
fn under_other_keys(((place, name), group): &Group<'_>) -> Option<Finding> {
    let mut executions: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for effect in group {
        let keys = executions.entry(effect.execution).or_default();
        keys.extend(effect.key.as_deref());
    }
    let fullest = executions.values().map(BTreeSet::len).max().unwrap_or(0);
    let all: BTreeSet<&str> = executions.into_values().flatten().collect();
    (all.len() > fullest).then(|| Finding::KeyDiffers {
        effect: (*name).to_owned(),
        place: (*place).clone(),
        keys: all.into_iter().map(str::to_owned).collect(),
    })
}

/// Effects that have one key and are not one: another name, place or payload. One that is asked for
/// twice in the same way is what keys are for.
fn under_one_key(effects: &[Effect]) -> Vec<Finding> {
    let mut firsts: BTreeMap<(Option<&str>, &str), &Effect> = BTreeMap::new();
    let mut findings = Vec::new();
    for effect in effects {
        let Some(key) = &effect.key else { continue };
        let first = firsts.entry((effect.service.as_deref(), key)).or_insert(effect);
        let is_repeat = first.name == effect.name && first.place == effect.place;
        if is_repeat && first.payload == effect.payload {
            continue;
        }
        let text = |of: &Effect| of.payload.as_ref().map_or("none".to_owned(), ToString::to_string);
        let finding = if is_repeat && first.execution != effect.execution {
            let payloads = [text(first), text(effect)];
            let (effect, place) = (effect.name.clone(), effect.place.clone());
            Finding::InputDiffers { effect, place, payloads }
        } else {
            let both = [*first, effect];
            let effects = both.map(|of| of.name.clone());
            Finding::KeyShared {
                effects,
                key: key.clone(),
                places: both.map(|of| of.place.clone()),
            }
        };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

/// Why the run of a play did not end, if it did not.
pub(super) fn not_ended(played: &Played) -> Option<Finding> {
    let why = match &played.finish {
        Finish::Ended(_) => return None,
        Finish::Waits(run) => match &run.waits_for {
            Some(Waits::Stuck { code, detail }) => {
                let (code, detail) = (code.clone(), detail.clone());
                return Some(Finding::Mismatch { code, detail });
            }
            _ => {
                let now = run.due_at.unwrap_or(run.created_at);
                crate::why(run, crate::Around::default(), now).to_string()
            }
        },
        Finish::TimedOut => {
            "a body, or something that is not from its ctx, took too long".to_owned()
        }
        Finish::Refused(error) => error.to_string(),
    };
    Some(Finding::NotEnded { why: why.trim_end_matches('.').to_owned() })
}

/// What a play with a crash says, compared with the one without. The results of the steps in
/// `varying` may differ, and so may the output, which may be made of them.
pub(super) fn compare(without: &Played, with: &Played, varying: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = of_effects(with);
    let interrupted = interrupted(with);
    if !interrupted.is_empty() {
        findings.extend(interrupted);
        return findings;
    }
    let (Finish::Ended(before), Finish::Ended(after)) = (&without.finish, &with.finish) else {
        findings.extend(not_ended(with));
        return findings;
    };
    findings.extend(steps_differ(without, with));
    findings.extend(order_differs(&without.events, &with.events));
    findings.extend(results_differ(without, with, varying));
    findings.extend(lost(without, with));
    let results = [ending(before), ending(after)];
    if varying.is_empty() && results[0] != results[1] {
        findings.push(Finding::ResultDiffers { results });
    }
    findings
}

fn interrupted(played: &Played) -> Vec<Finding> {
    let failed = played.histories.values().flatten().filter(|record| {
        matches!(&record.entry, Entry::Failed(failure) if failure.is(Code::Interrupted.as_str()))
    });
    failed.map(|record| Finding::Interrupted { step: record.step.clone() }).collect()
}

/// A step: where its run came from, and its name there.
type OfRun<'a> = (&'a str, &'a str);

/// The result of each step that ended, as text, in the runs that both plays have to show.
fn ends<'a>(played: &'a Played, other: &Played) -> BTreeMap<OfRun<'a>, String> {
    let both = played.histories.iter().filter(|(origin, _)| other.histories.contains_key(*origin));
    let all = both.flat_map(|(origin, records)| records.iter().map(move |it| (origin, it)));
    let ended =
        all.filter(|(_, record)| record.voided_at.is_none() && record.entry.kind().is_final());
    let text = |record: &Record| match &record.entry {
        // It names places in the history, in which gaps may differ.
        Entry::Done(_) if record.step == step_id::UNDO => "turned back".to_owned(),
        Entry::Done(json) => json.to_string(),
        Entry::Failed(failure) => format!("the failure {:?}: {}", failure.code, failure.message),
        other => other.kind().to_string(),
    };
    ended.map(|(origin, record)| ((origin.as_str(), record.step.as_str()), text(record))).collect()
}

fn steps_differ(without: &Played, with: &Played) -> Option<Finding> {
    let (before, after) = (ends(without, with), ends(with, without));
    let only = |of: &BTreeMap<OfRun<'_>, String>, other: &BTreeMap<OfRun<'_>, String>| {
        let only = of.keys().filter(|step| !other.contains_key(*step));
        only.map(|(origin, step)| format!("{origin}{step}")).collect::<Vec<_>>()
    };
    let (missing, instead) = (only(&before, &after), only(&after, &before));
    let same = missing.is_empty() && instead.is_empty();
    (!same).then_some(Finding::StepsDiffer { missing, instead })
}

fn results_differ(without: &Played, with: &Played, varying: &BTreeSet<String>) -> Vec<Finding> {
    let mut after = ends(with, without);
    let changed = ends(without, with).into_iter().filter_map(|((origin, step), before)| {
        let after = after.remove(&(origin, step))?;
        let differs = before != after && !varying.contains(step);
        let results = [before, after];
        differs.then(|| Finding::StepResultDiffers { step: format!("{origin}{step}"), results })
    });
    changed.collect()
}

/// Two steps, of which the second began after the first was recorded in one play, and the other
/// way round in the other. Steps that are taken at once are in no order.
fn order_differs(without: &[Event], with: &[Event]) -> Option<Finding> {
    let (before, after) = (Order::of(without), Order::of(with));
    let neighbours = before.recorded_in_order.windows(2);
    neighbours.filter_map(|pair| <&[&str; 2]>::try_from(pair).ok()).find_map(|[first, second]| {
        let turned = before.has(first, second) && after.has(second, first);
        let (first, second) = (step_of(first).to_owned(), step_of(second).to_owned());
        turned.then_some(Finding::OrderDiffers { first, second })
    })
}

/// When the steps of a play began and were recorded, by the places of the events.
struct Order<'a> {
    began: BTreeMap<&'a str, usize>,
    recorded: BTreeMap<&'a str, usize>,
    recorded_in_order: Vec<&'a str>,
}

impl<'a> Order<'a> {
    fn of(events: &'a [Event]) -> Self {
        let mut order =
            Self { began: BTreeMap::new(), recorded: BTreeMap::new(), recorded_in_order: vec![] };
        for (place, event) in events.iter().enumerate() {
            match event {
                Event::Began(step) => drop(order.began.entry(step).or_insert(place)),
                Event::Recorded(step) => {
                    order.recorded.entry(step).or_insert(place);
                    order.recorded_in_order.push(step);
                }
                Event::Effect(_) => {}
            }
        }
        order
    }

    /// Whether `second` began after `first` was recorded.
    fn has(&self, first: &str, second: &str) -> bool {
        let (recorded, began) = (self.recorded.get(first), self.began.get(second));
        recorded.zip(began).is_some_and(|(recorded, began)| recorded < began)
    }
}

/// Effects that a crash left out.
fn lost(without: &Played, with: &Played) -> Vec<Finding> {
    let (before, after) = (of_events(&without.events), of_events(&with.events));
    let names: BTreeSet<_> = before.iter().map(|effect| &effect.name).collect();
    let count = |of: &[Effect], name: &str| happened(of.iter().filter(|e| e.name == name));
    let lost = names.into_iter().filter_map(|name| {
        let (expected, happened) = (count(&before, name), count(&after, name));
        let effect = name.clone();
        (happened < expected).then_some(Finding::Lost { effect, expected, happened })
    });
    lost.collect()
}

/// How a run ended, as text.
fn ending(run: &Run) -> String {
    let state = run.state;
    match (&run.output, &run.failure) {
        (Some(output), _) => format!("{state} with {output}"),
        (None, Some(failure)) => format!("{state} with {:?}: {}", failure.code, failure.message),
        (None, None) => state.to_string(),
    }
}
