//! The intake: what a worker takes next, and being alone with suspects.
//!
//! Owns: when other runs wait for suspects and for how long, and how many suspects are executed beside
//! each other. Never claims, and never stops anything.
//!
//! A suspect is executed alone, so that its crash takes nobody with it. Each that ends or records is
//! cleared, and lets one more be executed beside the next: most of a batch that crashed together are
//! innocent. One that has crashed again since is alone whatever came before it. Neither those that wait
//! for suspects nor the suspects that wait for others wait for long.

use std::time::Instant;

use super::crew::Crew;
use crate::limits::{
    CLAIM_BATCH_MAX, SUSPECT_CRASHES, SUSPECT_PATIENCE, SUSPECTS_BESIDE_MAX, SUSPECTS_TURN_MAX,
};
use crate::store::{ClaimMode, Claims};

/// What a worker may take.
pub(super) struct Intake {
    /// Set while nothing is taken but suspects.
    shut: Option<Shut>,
    /// Whether suspects are queued, as far as the last claim knows.
    left: bool,
    /// How many suspects may execute beside each other.
    beside: usize,
    /// Suspects that were executing at the last look.
    executing: usize,
}

#[derive(Clone, Copy)]
struct Shut {
    since: Instant,
    /// When the last suspect was taken; until there is one, the crew empties.
    tried: Option<Instant>,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self { shut: None, left: false, beside: 1, executing: 0 }
    }

    /// Whether other runs are taken than suspects.
    pub(super) fn is_open(&self) -> bool {
        self.shut.is_none()
    }

    /// Whether the next claim would take something, if it may take anything.
    pub(super) fn is_due(&self, more: bool) -> bool {
        more || self.left
    }

    /// What the next claim takes, and how many.
    pub(super) fn choose(&mut self, crew: &Crew) -> (ClaimMode, usize) {
        let ordinary = (ClaimMode::Ordinary, crew.free().min(CLAIM_BATCH_MAX));
        self.count_cleared(crew);
        let Some(Shut { since, tried }) = self.shut else { return ordinary };
        let is_over = !self.left && self.executing == 0;
        // Whoever else is queued has a turn too, however many suspects there are.
        if is_over || since.elapsed() > SUSPECTS_TURN_MAX {
            self.shut = None;
            return ordinary;
        }
        let is_next = match tried {
            None => crew.is_empty() || since.elapsed() > SUSPECT_PATIENCE,
            Some(_) => self.executing < self.beside,
        };
        if self.left && is_next { (ClaimMode::Suspect, 1) } else { (ClaimMode::Ordinary, 0) }
    }

    /// Heeds what a claim says about suspects.
    pub(super) fn heed(&mut self, mode: ClaimMode, claims: &Claims) {
        let sought = mode == ClaimMode::Suspect;
        // One that this claim did not get is about to be another worker's.
        self.left = claims.suspect && !(sought && claims.runs.is_empty());
        let now = Instant::now();
        match &mut self.shut {
            None if self.left => self.shut = Some(Shut { since: now, tried: None }),
            Some(shut) if sought && !claims.runs.is_empty() => {
                shut.tried = Some(now);
                if claims.runs.iter().any(|claimed| claimed.run.crashes > SUSPECT_CRASHES) {
                    self.beside = 1;
                }
            }
            _ => {}
        }
        if !self.left && self.shut.is_none() {
            self.beside = 1;
        }
    }

    /// Counts the suspects that were cleared since the last look. So are those that have been alone for
    /// long enough.
    fn count_cleared(&mut self, crew: &Crew) {
        let mut executing = crew.suspects();
        let tried = self.shut.and_then(|shut| shut.tried);
        if executing > 0 && tried.is_none_or(|tried| tried.elapsed() > SUSPECT_PATIENCE) {
            crew.give_up_suspects();
            executing = 0;
        }
        let cleared = self.executing.saturating_sub(executing);
        self.beside = (self.beside + cleared).min(SUSPECTS_BESIDE_MAX);
        self.executing = executing;
    }
}
