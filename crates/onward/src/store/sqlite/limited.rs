//! Claiming from queues that are limited.
//!
//! Owns: what a claim sees of such a queue, and what it notes about it. Never decides how much it may
//! take; `store::limited` does.

use rusqlite::params;

use super::claim::{Candidate, Open};
use super::fault::Fault;
use super::row::{self, worker_blob};
use super::tx::Tx;
use crate::Timestamp;
use crate::store::limited::{
    Choice, Granted, Limited, Site, Within, choose as choose_one, in_places,
};
use crate::store::{Claim, ClaimMode, Claimed};

/// A run that a claim may take.
#[derive(Clone)]
pub(super) struct Chosen {
    candidate: Candidate,
    lane: Option<String>,
}

/// What a claim sees of one queue.
struct Seen<'t, 'c> {
    tx: &'t Tx<'c>,
    claim: &'t Claim,
    queue: &'t str,
    open: Open<'t>,
}

impl Seen<'_, '_> {
    fn with_lane(&self, mut candidates: Vec<Candidate>) -> Result<Vec<Chosen>, Fault> {
        candidates.sort_unstable();
        let lane = |candidate: Candidate| {
            let sql = include_str!("sql/claim_lane.sql");
            let lane = row::first(self.tx.conn, sql, [candidate.no], |row| Ok(row.get(0)?))?;
            Ok(Chosen { candidate, lane: lane.flatten() })
        };
        candidates.into_iter().map(lane).collect()
    }

    fn laneless(&self, limit: usize) -> Result<Vec<Chosen>, Fault> {
        let mut found = Vec::new();
        for workflow in self.open.workflows() {
            let params = params![self.queue, workflow, row::limit(limit)];
            let sql = include_str!("sql/claim_laneless.sql");
            found.append(&mut row::all(self.tx.conn, sql, params, Candidate::read)?);
        }
        found.sort_unstable();
        found.truncate(limit);
        Ok(found.into_iter().map(|candidate| Chosen { candidate, lane: None }).collect())
    }
}

impl Chosen {
    pub(super) fn no(&self) -> i64 {
        self.candidate.no
    }
}

impl Site for Seen<'_, '_> {
    type Run = Chosen;
    type Fault = Fault;

    fn lane_of(run: &Chosen) -> Option<&str> {
        run.lane.as_deref()
    }

    fn running(&mut self) -> Result<(u64, u64), Fault> {
        let params = params![self.queue, worker_blob(self.claim.worker)];
        let sql = include_str!("sql/claim_running.sql");
        let counts =
            row::first(self.tx.conn, sql, params, |row| Ok((count(row, 0)?, count(row, 1)?)));
        Ok(counts?.unwrap_or_default())
    }

    fn lane_running(&mut self, lane: &str) -> Result<u64, Fault> {
        let params = params![self.queue, lane];
        let sql = include_str!("sql/claim_lane_running.sql");
        let running = row::first(self.tx.conn, sql, params, |row| count(row, 0));
        Ok(running?.unwrap_or_default())
    }

    fn granted(&mut self, within: Within) -> Result<Granted, Fault> {
        granted(self.tx.conn, self.queue, within)
    }

    fn first(&mut self, mode: ClaimMode, limit: usize) -> Result<Vec<Chosen>, Fault> {
        let mut first = self.open.first(self.tx, mode, limit)?;
        first.sort_unstable();
        first.truncate(limit);
        self.with_lane(first)
    }

    fn first_kept(&mut self, limit: usize) -> Result<Vec<Chosen>, Fault> {
        let kept = self.open.first_kept(self.tx, ClaimMode::Ordinary, limit)?;
        self.with_lane(kept)
    }

    fn lane_after(&mut self, lane: Option<&str>) -> Result<Option<String>, Fault> {
        if lane.is_none() && !self.laneless(1)?.is_empty() {
            return Ok(Some(String::new()));
        }
        let mut next: Option<String> = None;
        for workflow in self.open.workflows() {
            let params = params![self.queue, workflow, lane.unwrap_or_default()];
            let sql = include_str!("sql/claim_lane_after.sql");
            let found = row::first(self.tx.conn, sql, params, |row| Ok(row.get(0)?))?;
            next = next.into_iter().chain(found).min();
        }
        Ok(next)
    }

    fn lane_first(&mut self, lane: &str, limit: usize) -> Result<Vec<Chosen>, Fault> {
        if lane.is_empty() {
            return self.laneless(limit);
        }
        let mut found = Vec::new();
        for workflow in self.open.workflows() {
            let params = params![self.queue, workflow, lane, row::limit(limit)];
            let sql = include_str!("sql/claim_lane_first.sql");
            found.append(&mut row::all(self.tx.conn, sql, params, |row| {
                Ok((row.get::<_, bool>(4)?, Candidate::read(row)?))
            })?);
        }
        found.sort_unstable();
        found.truncate(limit);
        let chosen = |(_, candidate)| Chosen { candidate, lane: Some(lane.to_owned()) };
        Ok(found.into_iter().map(chosen).collect())
    }
}

/// What was granted of a queue within a time.
pub(super) fn granted(
    conn: &rusqlite::Connection,
    queue: &str,
    within: Within,
) -> Result<Granted, Fault> {
    let params = params![queue, within.after.as_millis(), within.until.as_millis()];
    let granted = row::first(conn, include_str!("sql/claim_granted.sql"), params, |row| {
        let first_at = row.get::<_, Option<i64>>(1)?.map(Timestamp::from_millis);
        Ok(Granted { count: count(row, 0)?, first_at })
    });
    Ok(granted?.unwrap_or_default())
}

fn count(row: &rusqlite::Row<'_>, column: usize) -> Result<u64, Fault> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(Fault::data)
}

fn chosen(
    tx: &Tx<'_>,
    claim: &Claim,
    open: &Open<'_>,
    limited: &Limited,
    (mode, limit): (ClaimMode, usize),
) -> Result<Choice<Chosen>, Fault> {
    let queue = limited.queue.name.as_str();
    let mut seen = Seen { tx, claim, queue, open: open.of(queue, claim) };
    choose_one(&mut seen, limited, mode, limit, tx.now)
}

/// The runs of limited queues that a claim may take, queue by queue, in turn, each with its place among all.
pub(super) fn choose(
    tx: &Tx<'_>,
    claim: &Claim,
    open: &Open<'_>,
    limited: &[Limited],
    limit: usize,
) -> Result<Vec<(Candidate, Chosen)>, Fault> {
    let mut all = Vec::new();
    for limited in limited {
        let choice = chosen(tx, claim, open, limited, (claim.mode, limit))?;
        if let Some(cut_at) = choice.cut_at {
            turn(tx, &limited.queue.name, &cut_at)?;
        }
        all.extend(in_places(choice.runs, |chosen| chosen.candidate.clone()));
    }
    Ok(all)
}

/// Notes what was taken of limited queues: whose turn was last, and what counts against a rate.
pub(super) fn note(
    tx: &Tx<'_>,
    taken: &[Claimed],
    chosen: &[(Candidate, Chosen)],
    limited: &[Limited],
) -> Result<(), Fault> {
    for limited in limited {
        let name = &limited.queue.name;
        let mine: Vec<_> = taken.iter().filter(|claimed| claimed.run.queue == *name).collect();
        if let Some(rate) = limited.queue.limits.rate {
            let within = Within::period(tx.now, rate.period_ms);
            let params = params![name, within.after.as_millis(), within.until.as_millis()];
            tx.execute(include_str!("sql/claim_grants_over.sql"), params)?;
            for _ in &mine {
                let params = params![name, tx.now.as_millis()];
                tx.execute(include_str!("sql/claim_grant.sql"), params)?;
            }
        }
        let is_taken = |chosen: &&Chosen| {
            mine.iter().any(|claimed| row::run_blob(claimed.run.id) == *chosen.candidate.id())
        };
        if limited.queue.limits.per_lane.is_some()
            && let Some(last) = chosen.iter().map(|(_, chosen)| chosen).rfind(is_taken)
        {
            turn(tx, name, last.lane.as_deref().unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Notes whose turn was last.
pub(super) fn turn(tx: &Tx<'_>, queue: &str, lane: &str) -> Result<(), Fault> {
    tx.execute(include_str!("sql/queue_turn.sql"), params![queue, lane])?;
    Ok(())
}

/// What is left of limited queues after a claim.
#[derive(Default)]
pub(super) struct Left {
    pub(super) more: bool,
    pub(super) suspect: bool,
    pub(super) look_at: Option<Timestamp>,
}

/// Whether a further claim could take something of a limited queue, and when to look again.
pub(super) fn left(
    tx: &Tx<'_>,
    claim: &Claim,
    open: &Open<'_>,
    limited: &[Limited],
) -> Result<Left, Fault> {
    let mut left = Left::default();
    for limited in limited {
        let ordinary = chosen(tx, claim, open, limited, (ClaimMode::Ordinary, 1))?;
        let suspect = chosen(tx, claim, open, limited, (ClaimMode::Suspect, 1))?;
        left.more |= !ordinary.runs.is_empty();
        left.suspect |= !suspect.runs.is_empty();
        left.look_at = left.look_at.into_iter().chain(ordinary.look_at).min();
    }
    Ok(left)
}
