//! A run's own chance and time, which are the same in every replay.
//!
//! Owns: what its numbers are made from, and what time it is for the function. Never asks a generator:
//! a number is derived from a run and from the count of such calls.
//!
//! A fork replays what another run recorded, with the numbers of that run: what is recorded was done
//! with them. All that a record can depend on was asked for before that record was given to the
//! function, so from the last copied record on the numbers are the fork's own, and so is the time.

use sha2::{Digest, Sha256};

use super::{Board, Inner};
use crate::{Run, RunId, Seed, Timestamp, Uuid};

/// The chance of one execution.
pub(crate) struct Chance {
    own: RunId,
    seeds: Vec<Seed>,
    drawn: u64,
    /// When the run itself began.
    began_at: Option<Timestamp>,
}

impl Chance {
    pub(crate) fn of(run: &Run) -> Self {
        let origin = run.notes.origin.as_ref();
        let seeds = origin.map_or_else(Vec::new, |origin| origin.seeds.clone());
        Self { own: run.id, seeds, drawn: 0, began_at: run.started_at }
    }

    /// The time that a fork's own begins with, once it was given the last record that it took along.
    fn own_time(&self, given: u64) -> Option<Timestamp> {
        self.began_at.filter(|_| self.seeds.last().is_some_and(|seed| given >= seed.until))
    }

    /// The number of the last record that the run took along from another, if it is a fork.
    pub(super) fn inherited(&self) -> u64 {
        self.seeds.last().map_or(0, |seed| seed.until)
    }

    /// The run that made the record with this number: this one, or that which it was forked from.
    fn maker(&self, seq: u64) -> RunId {
        let seed = self.seeds.iter().find(|seed| seq <= seed.until);
        seed.map_or(self.own, |seed| seed.run)
    }

    /// The next number, for a function whose latest result is of the record with this number.
    fn draw(&mut self, given: u64) -> [u8; 32] {
        self.drawn += 1;
        let seed = self.seeds.iter().find(|seed| given < seed.until);
        let mut hash = Sha256::new();
        hash.update(seed.map_or(self.own, |seed| seed.run).as_u128().to_be_bytes());
        hash.update(self.drawn.to_be_bytes());
        hash.finalize().into()
    }
}

impl Inner {
    /// Notes that the function is given a record, and the time that it is by that.
    pub(super) fn given(&mut self, seq: u64, at: Timestamp) {
        self.numbers.deliver();
        self.notepad.delivered(seq);
        let own = self.chance.own_time(self.notepad.given());
        self.now = self.now.max(at).max(own.unwrap_or(at));
    }
}

impl Board {
    /// The child whose start or end is the record with this number. A fork may have the record of the
    /// run that it was forked from, whose child it is.
    pub(crate) fn child_of(&self, seq: u64, name: &str) -> RunId {
        RunId::derived(self.lock().chance.maker(seq), name)
    }

    /// A number derived from the run and the count of such calls.
    pub(crate) fn random(&self) -> [u8; 32] {
        let mut inner = self.lock();
        let given = inner.notepad.given();
        let (uncertain, drawn) = (inner.numbers.draw(), inner.chance.draw(given));
        drop(inner);
        if uncertain {
            let instead = "Draw the numbers before the branches begin.";
            self.refuse_order("ctx.random() or ctx.uuid()", instead);
        }
        drawn
    }

    pub(crate) fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.random()[..16]);
        Uuid::derived(bytes)
    }
}
