//! The audit: every change of the store in the order of its commits, and what it must not show.
//!
//! Owns: the triggers (`audit.sql`), the changes that they keep, and the rules about their order.
//! It sees what the tables alone do not: *when* a write was committed, against the moment at which
//! its worker lost the lease or another claimed the run. Never asks the library about anything.

use std::collections::{HashMap, HashSet};
use std::fmt;

use onward_crash::effect::Effect;
use tokio_postgres::{Client, Row};

/// A change, at its place in the order of commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The place of its transaction among all commits.
    pub commit: i64,
    /// When that was, in microseconds since 1970 by the server's clock: shortly before the end of
    /// the commit.
    pub at_us: u64,
    /// What changed.
    pub what: What,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "a field is what its name says")]
pub enum What {
    /// A worker joined; `place` is its host and process.
    Joined { worker: String, place: String },
    /// A worker was marked lost.
    Lost { worker: String },
    /// A run was started.
    Started { run: String },
    /// A run was claimed.
    Claimed { run: String, worker: String, attempt: i32 },
    /// A run is not held any more: it ended, waits or is queued, as `to` says.
    Left { run: String, worker: String, attempt: i32, to: String },
    /// A record was written; `kind` is what it records of the step.
    Recorded { run: String, attempt: i32, step: String, try_number: i32, kind: String },
    /// A change that no rule is about.
    Other(String),
}

/// A promise about order that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "a field is what its name says")]
pub enum Violation {
    /// A record was written in an attempt that did not hold the run at that time.
    LateRecord { run: String, step: String, attempt: i32, holder: Option<i32> },
    /// A worker wrote after it was marked lost.
    LostWorkerWrote { run: String, worker: String, what: &'static str },
    /// A run was claimed while another attempt held it, or out of the order of its attempts.
    ClaimedTwice { run: String, attempt: i32, holder: i32 },
    /// A run was changed after its end.
    AfterTheEnd { run: String, what: &'static str },
    /// An end was written by another attempt than the one that held the run.
    LateEnd { run: String, attempt: i32, holder: Option<i32> },
    /// A worker that was lost lives again.
    Revived(String),
    /// A body began in an attempt that was claimed after its result was committed.
    RanAgain { step_id: String, attempt: i32, try_number: u32 },
    /// A body began twice for one try in one attempt.
    RanTwice { step_id: String, attempt: i32, try_number: u32 },
    /// A body began in a process that had not claimed its run.
    RanUnclaimed { step_id: String, pid: u32 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Begins the audit of a database that has the store's schema.
///
/// # Errors
/// When the server refuses it.
pub async fn install(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(include_str!("audit.sql")).await
}

/// All changes, in the order of their commits.
///
/// # Errors
/// When the server does not answer.
pub async fn read(client: &Client) -> Result<Vec<Change>, tokio_postgres::Error> {
    let read = "select m.no, m.at_us, c.what, c.run::text, c.worker::text, c.attempt, c.step, \
                c.try_number, c.detail \
                from audit.changes c join audit.commits m on m.tx = c.tx order by m.no, c.no";
    Ok(client.query(read, &[]).await?.iter().map(change).collect())
}

fn change(row: &Row) -> Change {
    let text = |at: usize| row.get::<_, Option<String>>(at).unwrap_or_default();
    let number = |at: usize| row.get::<_, Option<i32>>(at).unwrap_or_default();
    let (run, worker, attempt, detail) = (text(3), text(4), number(5), text(8));
    let what = match text(2).as_str() {
        "joined" => What::Joined { worker, place: detail },
        "lost" => What::Lost { worker },
        "started" => What::Started { run },
        "claimed" => What::Claimed { run, worker, attempt },
        "left" => What::Left { run, worker, attempt, to: detail },
        "recorded" => {
            let (step, try_number) = (text(6), number(7));
            What::Recorded { run, attempt, step, try_number, kind: detail }
        }
        other => What::Other(format!("{other} {run}{worker} {detail}")),
    };
    Change { commit: row.get(0), at_us: row.get::<_, i64>(1).unsigned_abs(), what }
}

/// The states in which a run is over.
const FINAL: [&str; 3] = ["completed", "failed", "cancelled"];

/// How a sweep leaves a run; only a holder leaves it otherwise.
const SWEPT: [&str; 3] = ["queued", "waiting:backoff", "waiting:stuck"];

/// What the changes so far say.
#[derive(Default)]
struct Ledger<'a> {
    lost: HashSet<&'a str>,
    runs: HashMap<&'a str, Held<'a>>,
    violations: Vec<Violation>,
}

#[derive(Default)]
struct Held<'a> {
    /// The latest attempt.
    attempt: i32,
    /// Who holds the run in it, if anybody does.
    worker: Option<&'a str>,
    ended: bool,
}

impl Held<'_> {
    fn holder(&self) -> Option<i32> {
        self.worker.map(|_| self.attempt)
    }
}

/// Every promise about order that the changes break.
pub fn check(changes: &[Change]) -> Vec<Violation> {
    let mut ledger = Ledger::default();
    for Change { what, .. } in changes {
        match what {
            What::Lost { worker } => drop(ledger.lost.insert(worker)),
            What::Claimed { run, worker, attempt } => ledger.claimed(run, worker, *attempt),
            What::Recorded { run, attempt, step, .. } => ledger.recorded(run, *attempt, step),
            What::Left { run, attempt, to, .. } => ledger.left(run, *attempt, to),
            What::Other(what) if what.starts_with("revived") => {
                ledger.violations.push(Violation::Revived(what.clone()));
            }
            What::Joined { .. } | What::Started { .. } | What::Other(_) => {}
        }
    }
    ledger.violations
}

impl<'a> Ledger<'a> {
    fn claimed(&mut self, run: &'a str, worker: &'a str, attempt: i32) {
        let held = self.runs.entry(run).or_default();
        if held.worker.is_some() || attempt != held.attempt + 1 {
            let holder = held.attempt;
            self.violations.push(Violation::ClaimedTwice { run: run.to_owned(), attempt, holder });
        }
        if held.ended {
            self.violations.push(Violation::AfterTheEnd { run: run.to_owned(), what: "claimed" });
        }
        (held.attempt, held.worker) = (attempt, Some(worker));
        self.check_live(run, worker, "claimed");
    }

    fn recorded(&mut self, run: &'a str, attempt: i32, step: &str) {
        let held = self.runs.entry(run).or_default();
        if held.ended {
            self.violations.push(Violation::AfterTheEnd { run: run.to_owned(), what: "recorded" });
        }
        let (holder, worker) = (held.holder(), held.worker);
        if holder != Some(attempt) {
            let (run, step) = (run.to_owned(), step.to_owned());
            self.violations.push(Violation::LateRecord { run, step, attempt, holder });
        } else if let Some(worker) = worker {
            self.check_live(run, worker, "recorded");
        }
    }

    fn left(&mut self, run: &'a str, attempt: i32, to: &str) {
        let held = self.runs.entry(run).or_default();
        let (holder, worker) = (held.holder(), held.worker.take());
        if held.ended {
            self.violations.push(Violation::AfterTheEnd { run: run.to_owned(), what: "settled" });
        }
        held.ended |= FINAL.contains(&to);
        if holder != Some(attempt) {
            self.violations.push(Violation::LateEnd { run: run.to_owned(), attempt, holder });
        } else if let Some(worker) = worker.filter(|_| !SWEPT.contains(&to)) {
            self.check_live(run, worker, "settled");
        }
    }

    fn check_live(&mut self, run: &str, worker: &str, what: &'static str) {
        if self.lost.contains(worker) {
            let (run, worker) = (run.to_owned(), worker.to_owned());
            self.violations.push(Violation::LostWorkerWrote { run, worker, what });
        }
    }
}

/// Bodies that began though their result was committed, or twice. A body belongs to the latest
/// attempt that its process had claimed by then; both clocks are this machine's. The body of a
/// transaction may begin again in its attempt: what it did before is undone.
pub fn check_bodies(
    changes: &[Change],
    effects: &[Effect],
    is_transaction: fn(&Effect) -> bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let seen = Bodies::read(changes);
    let mut began = HashSet::new();
    for effect in effects {
        let (step_id, try_number) = (effect.step_id.clone(), effect.try_number);
        let Some((attempt, commit)) = seen.claim_of(effect) else {
            violations.push(Violation::RanUnclaimed { step_id, pid: effect.pid });
            continue;
        };
        let again = !began.insert((&effect.step_id, attempt, try_number));
        if again && !is_transaction(effect) {
            let step_id = step_id.clone();
            violations.push(Violation::RanTwice { step_id, attempt, try_number });
        }
        let records = seen.records.get(effect.step_id.as_str()).into_iter().flatten();
        if records.into_iter().any(|record| record.rules_out(commit, try_number)) {
            violations.push(Violation::RanAgain { step_id, attempt, try_number });
        }
    }
    violations
}

/// What the changes say about bodies.
struct Bodies<'a> {
    /// The claims of each run, each with the process that made it.
    claims: HashMap<&'a str, Vec<Claim>>,
    /// The records of each step, by its id.
    records: HashMap<String, Vec<Written<'a>>>,
}

struct Claim {
    pid: u32,
    attempt: i32,
    commit: i64,
    at_us: u64,
}

/// A record, and when it was committed.
struct Written<'a> {
    commit: i64,
    try_number: i32,
    kind: &'a str,
}

impl Written<'_> {
    /// Whether a body may not begin for this try in an attempt that was claimed at this commit.
    fn rules_out(&self, claimed: i64, try_number: u32) -> bool {
        let of_try = i64::from(self.try_number).cmp(&i64::from(try_number));
        self.commit < claimed
            && match self.kind {
                "try_failed" => of_try.is_ge(),
                "began" => of_try.is_eq(),
                _ => true,
            }
    }
}

impl<'a> Bodies<'a> {
    fn read(changes: &'a [Change]) -> Self {
        let mut places = HashMap::new();
        let mut bodies = Self { claims: HashMap::new(), records: HashMap::new() };
        for Change { commit, at_us, what } in changes {
            match what {
                What::Joined { worker, place } => {
                    let pid = place.rsplit(':').next().and_then(|pid| pid.parse().ok());
                    places.insert(worker.as_str(), pid.unwrap_or_default());
                }
                What::Claimed { run, worker, attempt } => {
                    let pid: u32 = places.get(worker.as_str()).copied().unwrap_or_default();
                    let claim = Claim { pid, attempt: *attempt, commit: *commit, at_us: *at_us };
                    bodies.claims.entry(run).or_default().push(claim);
                }
                What::Recorded { run, step, try_number, kind, .. } => {
                    let written = Written { commit: *commit, try_number: *try_number, kind };
                    bodies.records.entry(format!("{run}/{step}")).or_default().push(written);
                }
                _ => {}
            }
        }
        bodies
    }

    /// The attempt that a body began in, and the commit that claimed it.
    fn claim_of(&self, effect: &Effect) -> Option<(i32, i64)> {
        let claims = self.claims.get(effect.run.as_str())?;
        let mut own = claims.iter().rev().filter(|claim| claim.pid == effect.pid);
        let claim = own.find(|claim| claim.at_us <= effect.at_us)?;
        Some((claim.attempt, claim.commit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onward_crash::effect::Times;

    fn joined(worker: &str, pid: u32) -> What {
        What::Joined { worker: worker.to_owned(), place: format!("host:{pid}") }
    }

    fn lost(worker: &str) -> What {
        What::Lost { worker: worker.to_owned() }
    }

    fn claimed(worker: &str, attempt: i32) -> What {
        What::Claimed { run: "r".to_owned(), worker: worker.to_owned(), attempt }
    }

    fn recorded(attempt: i32, step: &str, kind: &str) -> What {
        let (run, step, kind) = ("r".to_owned(), step.to_owned(), kind.to_owned());
        What::Recorded { run, attempt, step, try_number: 1, kind }
    }

    fn left(worker: &str, attempt: i32, to: &str) -> What {
        What::Left { run: "r".to_owned(), worker: worker.to_owned(), attempt, to: to.to_owned() }
    }

    /// Each change in a commit of its own, a millisecond after the one before.
    fn story(whats: impl IntoIterator<Item = What>) -> Vec<Change> {
        let change = |(at, what)| {
            let at_us = u64::try_from(at).unwrap() * 1_000;
            Change { commit: i64::try_from(at).unwrap(), at_us, what }
        };
        whats.into_iter().enumerate().map(change).collect()
    }

    /// Worker `a` records one step and is lost; `b` goes on and completes the run.
    fn takeover() -> Vec<What> {
        vec![
            joined("a", 1),
            joined("b", 2),
            What::Started { run: "r".to_owned() },
            claimed("a", 1),
            recorded(1, "one", "done"),
            lost("a"),
            left("a", 1, "queued"),
            claimed("b", 2),
            recorded(2, "two", "done"),
            left("b", 2, "completed"),
        ]
    }

    fn effect(pid: u32, at_ms: u64, step: &str) -> Effect {
        Effect {
            generation: 1,
            pid,
            at_us: at_ms * 1_000,
            order: 0,
            key: "k".to_owned(),
            step_id: format!("r/{step}"),
            run: "r".to_owned(),
            try_number: 1,
            times: Times::AtLeastOnce,
        }
    }

    fn finds(change: impl FnOnce(&mut Vec<What>), wanted: fn(&Violation) -> bool) {
        let mut whats = takeover();
        change(&mut whats);
        let violations = check(&story(whats));
        assert!(violations.iter().any(wanted), "found only {violations:?}");
    }

    #[test]
    fn takeover_breaks_nothing() {
        let changes = story(takeover());
        assert_eq!(check(&changes), []);
        let effects = [effect(1, 3, "one"), effect(1, 4, "two"), effect(2, 8, "two")];
        assert_eq!(check_bodies(&changes, &effects, |_| false), []);
    }

    #[test]
    fn record_of_a_lost_attempt_is_found_however_it_falls() {
        for at in [7, 8, 9] {
            finds(
                |whats| whats.insert(at, recorded(1, "late", "done")),
                |v| matches!(v, Violation::LateRecord { attempt: 1, .. }),
            );
        }
    }

    #[test]
    fn record_between_the_mark_and_the_takeover_is_found() {
        finds(
            |whats| whats.insert(6, recorded(1, "late", "done")),
            |v| matches!(v, Violation::LostWorkerWrote { what: "recorded", .. }),
        );
    }

    #[test]
    fn end_of_a_lost_attempt_is_found() {
        finds(
            |whats| whats.insert(8, left("a", 1, "completed")),
            |v| matches!(v, Violation::LateEnd { attempt: 1, holder: Some(2), .. }),
        );
        finds(
            |whats| whats[6] = left("a", 1, "waiting:timer"),
            |v| matches!(v, Violation::LostWorkerWrote { what: "settled", .. }),
        );
    }

    #[test]
    fn claim_by_a_lost_worker_is_found() {
        finds(
            |whats| whats[7] = claimed("a", 2),
            |v| matches!(v, Violation::LostWorkerWrote { what: "claimed", .. }),
        );
    }

    #[test]
    fn claim_of_a_held_run_is_found() {
        finds(
            |whats| whats.insert(4, claimed("b", 2)),
            |v| matches!(v, Violation::ClaimedTwice { attempt: 2, holder: 1, .. }),
        );
    }

    #[test]
    fn write_after_the_end_is_found() {
        for late in [recorded(2, "late", "done"), left("b", 2, "completed"), claimed("b", 3)] {
            finds(|whats| whats.push(late), |v| matches!(v, Violation::AfterTheEnd { .. }));
        }
    }

    #[test]
    fn body_after_its_committed_record_is_found() {
        let changes = story(takeover());
        let violations = check_bodies(&changes, &[effect(2, 8, "one")], |_| true);
        assert!(matches!(violations.as_slice(), [Violation::RanAgain { attempt: 2, .. }]));
    }

    #[test]
    fn body_that_begins_twice_in_an_attempt_is_found() {
        let changes = story(takeover());
        let twice = [effect(1, 3, "one"), effect(1, 4, "one")];
        let violations = check_bodies(&changes, &twice, |_| false);
        assert!(matches!(violations.as_slice(), [Violation::RanTwice { attempt: 1, .. }]));
        assert_eq!(check_bodies(&changes, &twice, |_| true), []);
    }

    #[test]
    fn body_without_a_claim_is_found() {
        let changes = story(takeover());
        let violations = check_bodies(&changes, &[effect(2, 4, "two")], |_| false);
        assert!(matches!(violations.as_slice(), [Violation::RanUnclaimed { pid: 2, .. }]));
    }
}
