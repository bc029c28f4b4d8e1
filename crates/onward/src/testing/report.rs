//! What a check found, in plain words.
//!
//! Owns: [`Report`], its findings and how they read. Never looks for them.

use std::fmt;

use super::effects::Place;
use crate::error::open_ended;

/// What [`check`](super::RetrySafe::check) found.
///
/// Printed, it says what was seen, what to do about it, and how much could be judged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The workflow.
    pub workflow: String,
    /// How many effects were noted in the execution without a crash. What is not noted cannot be
    /// judged.
    pub effects: usize,
    /// At how many points the process was let die.
    pub points: usize,
    /// How many points there are besides, past
    /// [`CHECK_POINTS_MAX`](crate::limits::CHECK_POINTS_MAX).
    pub points_left: usize,
    /// What makes the workflow unsafe, each kind once.
    pub findings: Vec<Found>,
    /// What is worth knowing and no fault.
    pub notes: Vec<Found>,
}

/// A finding, and where it showed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// What was found.
    pub finding: Finding,
    /// The point of the death after which it first showed; `None`: without any.
    pub first_at: Option<Point>,
    /// In how many of the executions it showed.
    pub times: usize,
}

/// Something that a crash brings to light.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// An effect happened again, and nothing told the other side that it is the same one.
    Repeated {
        /// The effect.
        effect: String,
        /// Where it happens.
        place: Place,
        /// How often it happened.
        times: usize,
        /// The other effects of the same place.
        beside: Vec<String>,
    },
    /// An effect happened again under another key.
    KeyDiffers {
        /// The effect.
        effect: String,
        /// Where it happens.
        place: Place,
        /// The keys.
        keys: Vec<String>,
    },
    /// An effect was repeated under the same key with another payload.
    InputDiffers {
        /// The effect.
        effect: String,
        /// Where it happens.
        place: Place,
        /// The payloads.
        payloads: [String; 2],
    },
    /// Two different effects have the same key.
    KeyShared {
        /// The effects.
        effects: [String; 2],
        /// The key.
        key: String,
        /// The places.
        places: [Place; 2],
    },
    /// An effect that happens without a crash did not happen with one.
    Lost {
        /// The effect.
        effect: String,
        /// How often it happens without a crash.
        expected: usize,
        /// How often it happened.
        happened: usize,
    },
    /// The engine stopped the run before it could go another way than before.
    Mismatch {
        /// `history_mismatch`, `foreign_await`, `type_mismatch` or the like.
        code: String,
        /// What it saw.
        detail: String,
    },
    /// Other steps were recorded than without a crash.
    StepsDiffer {
        /// Those that are missing.
        missing: Vec<String>,
        /// Those that were recorded instead.
        instead: Vec<String>,
    },
    /// Two steps that follow one another changed places.
    OrderDiffers {
        /// The step that comes first without a crash.
        first: String,
        /// The step that follows it.
        second: String,
    },
    /// A step's recorded result is another one than without a crash.
    StepResultDiffers {
        /// The step.
        step: String,
        /// Its results, without and with the crash.
        results: [String; 2],
    },
    /// The run ended otherwise than without a crash.
    ResultDiffers {
        /// How it ended, without and with the crash.
        results: [String; 2],
    },
    /// The run did not end.
    NotEnded {
        /// What it waits for.
        why: String,
    },
    /// A step that is executed at most once was interrupted. That is what it is for, and no fault.
    Interrupted {
        /// The step.
        step: String,
    },
}

/// A point at which a process can die.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// On which side of it.
    pub side: Side,
    /// What happens at the point.
    pub what: What,
}

/// A side of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has not happened.
    Before,
    /// It has happened, and the process does not know.
    After,
}

/// What happens at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// An effect.
    Effect {
        /// Its name.
        name: String,
        /// Where it happens.
        place: Place,
    },
    /// The record of these steps.
    Record(Vec<String>),
    /// The start of a child, by the step that starts it.
    Start(String),
    /// The commit of this step's transaction, with its record.
    Transaction(String),
    /// The end of the run, with its last records.
    End,
    /// The run is set to wait, and its worker forgets it.
    Park,
    /// The worker gives the run back.
    Release,
}

impl Report {
    /// Whether every point was tried and nothing was found.
    pub fn is_safe(&self) -> bool {
        self.findings.is_empty() && self.points_left == 0
    }

    /// Adds a finding, to one of its kind if there is one.
    pub(super) fn add(&mut self, finding: Finding, at: Option<&Point>) {
        let note = matches!(finding, Finding::Interrupted { .. });
        let list = if note { &mut self.notes } else { &mut self.findings };
        match list.iter_mut().find(|found| found.finding.is_like(&finding)) {
            Some(found) => found.times += 1,
            None => list.push(Found { finding, first_at: at.cloned(), times: 1 }),
        }
    }
}

impl Finding {
    /// Whether two executions showed the same fault.
    fn is_like(&self, other: &Finding) -> bool {
        use Finding::*;
        match (self, other) {
            (Repeated { effect, place, .. }, Repeated { effect: e, place: p, .. })
            | (KeyDiffers { effect, place, .. }, KeyDiffers { effect: e, place: p, .. })
            | (InputDiffers { effect, place, .. }, InputDiffers { effect: e, place: p, .. }) => {
                effect == e && place == p
            }
            (Mismatch { code, .. }, Mismatch { code: other, .. }) => code == other,
            (StepsDiffer { .. }, StepsDiffer { .. })
            | (OrderDiffers { .. }, OrderDiffers { .. })
            | (ResultDiffers { .. }, ResultDiffers { .. }) => true,
            (StepResultDiffers { step, .. }, StepResultDiffers { step: other, .. }) => {
                step == other
            }
            _ => self == other,
        }
    }

    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Finding::Repeated { place: Place::Step { .. }, beside, .. } if !beside.is_empty() => {
                "Give each effect a step of its own: a crash between two of them repeats what came \
                 before it. And hand step.id() on as the idempotency key."
            }
            Finding::Repeated { place: Place::Step { .. }, .. } => {
                "Hand step.id() on as the idempotency key, write what is idempotent by itself (set a \
                 value instead of adding to it), or use a transaction or .at_most_once()."
            }
            Finding::Repeated { .. } => {
                "Move it into a step: the function is executed anew after each crash and each wait, \
                 and a task that it spawns is too."
            }
            Finding::KeyDiffers { .. } => {
                "Make the key of what stays the same: step.id(), or ids from the run's input. A \
                 clock or a random number gives another key each time."
            }
            Finding::InputDiffers { .. } => {
                "Take what varies (times, random numbers, the order of a map) from ctx or from an \
                 earlier step: many services refuse a known key with other parameters."
            }
            Finding::KeyShared { .. } => {
                "The other side takes the second for a repeat of the first and ignores it. Use \
                 step.id(), which differs from step to step. If the two go to different services, \
                 say so with .to(service)."
            }
            Finding::Lost { .. } => {
                "Something remembered that it was done before it was, outside the run's history."
            }
            Finding::Mismatch { .. } | Finding::StepsDiffer { .. } => {
                "Name steps by what stays the same over executions, and decide by what steps have \
                 returned: ctx.random(), ctx.uuid() and ctx.now() replay alike."
            }
            Finding::OrderDiffers { .. } => {
                "Iterate over a Vec or a BTreeMap: the order of a HashMap is another one each time."
            }
            Finding::StepResultDiffers { .. } => {
                "Its body gave another answer when it was executed again. If it may, say so with \
                 .may_vary(step); if not, what it asks did something twice."
            }
            Finding::ResultDiffers { .. } => "See what else was found: it follows from that.",
            Finding::NotEnded { .. } => "A check needs a workflow that ends by itself.",
            Finding::Interrupted { .. } => {
                "The crash gave the function a failure with the code `interrupted` in place of a \
                 second execution; only you can say whether it handles that well."
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.workflow;
        match (self.findings.len(), self.points_left) {
            (0, 0) => writeln!(f, "{name:?} is safe to retry, as far as could be seen.")?,
            (0, left) => writeln!(f, "{name:?} has {left} points that were not tried.")?,
            (count, _) => {
                writeln!(f, "{name:?} is not safe to retry: {}.", counted(count, "finding"))?
            }
        }
        let effects = counted(self.effects, "effect");
        write!(f, "It was executed once to its end, where it noted {effects}, and once for each ")?;
        writeln!(f, "of {} at which its process can die.", counted(self.points, "point"))?;
        if self.effects == 0 {
            writeln!(f, "No effect was noted: what is not noted cannot be judged.")?;
        }
        for (place, found) in self.findings.iter().enumerate() {
            write!(f, "\n{}. {found}", place + 1)?;
        }
        for found in &self.notes {
            write!(f, "\nNote: {found}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.finding)?;
        match &self.first_at {
            None => write!(f, "   Seen without any crash")?,
            Some(point) => write!(f, "   Seen when the process died {point}")?,
        }
        match self.times {
            0 | 1 => writeln!(f, ".")?,
            times => writeln!(f, ", and in {}.", counted(times - 1, "more execution"))?,
        }
        writeln!(f, "   {}", self.finding.advice())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Repeated { effect, place, times, .. } => write!(
                f,
                "The effect {effect:?} of {place} happened {times} times, without a key by which \
                 the other side could know that it is the same one."
            ),
            Finding::KeyDiffers { effect, place, keys } => {
                write!(f, "The effect {effect:?} of {place} came under another key when it was ")?;
                write!(f, "repeated: {}.", listed(keys))
            }
            Finding::InputDiffers { effect, place, payloads: [one, other] } => write!(
                f,
                "The effect {effect:?} of {place} was repeated with another payload: {one}, then \
                 {other}."
            ),
            Finding::KeyShared { effects: [first, second], key, places: [one, other] } => write!(
                f,
                "The effect {first:?} of {one} and the effect {second:?} of {other} have the same \
                 key, {key:?}."
            ),
            Finding::Lost { effect, expected, happened } => write!(
                f,
                "The effect {effect:?} happened {happened} times, and {expected} times without a \
                 crash."
            ),
            Finding::Mismatch { code, detail } => {
                let stopped =
                    "The function went another way when it was executed again, and the run";
                write!(f, "{stopped} was stopped ({code}): {}.", open_ended(detail))
            }
            Finding::StepsDiffer { missing, instead } => {
                let (missing, instead) = (listed(missing), listed(instead));
                write!(f, "Other steps were recorded than without a crash: ")?;
                write!(f, "missing {missing}; instead {instead}.")
            }
            Finding::OrderDiffers { first, second } => write!(
                f,
                "Step {second:?} follows step {first:?} without a crash, and came before it here."
            ),
            Finding::StepResultDiffers { step, results: [one, other] } => {
                write!(f, "Step {step:?} gave {one} without a crash, and {other} with it.")
            }
            Finding::ResultDiffers { results: [one, other] } => {
                write!(f, "The run ended otherwise: {one} without a crash, {other} with it.")
            }
            Finding::NotEnded { why } => write!(f, "The run did not end: {}.", open_ended(why)),
            Finding::Interrupted { step } => {
                write!(f, "Step {step:?} is executed at most once, and was interrupted.")
            }
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        match &self.what {
            What::Effect { name, place } => write!(f, "{side} the effect {name:?} of {place}"),
            What::Record(steps) => write!(f, "{side} the record of {}", listed(steps)),
            What::Start(step) => write!(f, "{side} the start of the child {step:?}"),
            What::Transaction(step) => write!(f, "{side} the transaction of step {step:?}"),
            What::End => write!(f, "{side} the run's end was recorded"),
            What::Park => write!(f, "{side} the run was set to wait"),
            What::Release => write!(f, "{side} the run was given back"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Step { id } => write!(f, "step {:?}", step_of(id)),
            Place::Function { .. } => f.write_str("the workflow function itself"),
            Place::Elsewhere => f.write_str("a task outside the run"),
        }
    }
}

/// The step's part of its id.
pub(super) fn step_of(id: &str) -> &str {
    id.split_once('/').map_or(id, |(_, step)| step)
}

fn listed(texts: &[String]) -> String {
    match texts {
        [] => "nothing".to_owned(),
        texts => crate::driver::past::listed(texts),
    }
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
