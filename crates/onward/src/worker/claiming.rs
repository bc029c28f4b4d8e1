//! Claiming: from the store to the crew.
//!
//! Owns: when to claim, and starting over under a new id when the lease is lost. What is taken is
//! `intake`'s to choose. Never executes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::crew::Odds;
use super::intake::Intake;
use super::tenure::{RENEWALS_PER_LEASE, Tenure};
use super::{Reserved, Shared};
use crate::driver::Stop;
use crate::store::{self, Asks, Claim, ClaimMode, Claims, Topic};
use crate::upkeep;

/// How often a busy worker looks for marks on its runs: half of the second within which a cancel
/// reaches a body.
const MARKS_EVERY: Duration = Duration::from_millis(500);

/// Leases for which a driver may do nothing before it is asked whether anything can wake it.
const STILL_LEASES: u32 = 2;

/// The pause after a claim that the store did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(200);

/// The pause after a claim that got nothing of what it saw: somebody is about to take it, or holds it for as
/// long as it takes. Ten looks a second cost the store little.
const MISSED_PAUSE: Duration = Duration::from_millis(100);

/// Serves, tenure after tenure, until the worker is told to stop.
pub(super) async fn serve(
    shared: Arc<Shared>,
    mut served: Served,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let tenure = Arc::clone(&served.tenure);
        let keeping_up = tokio::spawn(upkeep::keep_up(
            Arc::clone(&shared.store),
            Arc::clone(&tenure),
            shared.lease,
        ));
        let mut claiming = Claiming::new(&shared, &tenure);
        tokio::select! {
            () = claiming.keep_claiming() => {}
            () = tenure.attend() => {}
            () = tenure.ended() => {}
            () = tenure.moved() => {}
            () = told_to_stop(&mut stopped) => {
                keeping_up.abort();
                tenure.leaves();
                served.is_told_to_stop = true;
                return;
            }
        }
        keeping_up.abort();
        if tenure.is_moved() && !tenure.is_over() {
            give_all_back(&tenure, shared.shutdown_grace);
        } else {
            tenure.end();
            tracing::error!(
                worker = %tenure.worker,
                "the worker lost its lease: it stood still for longer than {:?}, and its runs went \
                 on elsewhere; nothing it had not recorded counts; joining again under a new id",
                shared.lease,
            );
            tenure.crew.stop_all(Stop::Drop);
            leave(&tenure);
        }
        match join_again(&shared, &mut stopped).await {
            Some(joined) => served.tenure = joined,
            None => return,
        }
    }
}

/// The tenure that is served; it ends with whoever serves it, unless that was told to stop. A runtime may end
/// while the worker's handle is kept: then nobody executes its runs, and the thread that renews the lease
/// must not hold them.
pub(super) struct Served {
    tenure: Arc<Tenure>,
    is_told_to_stop: bool,
}

impl Served {
    pub(super) fn of(tenure: Arc<Tenure>) -> Self {
        Self { tenure, is_told_to_stop: false }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if !self.is_told_to_stop {
            self.tenure.end();
        }
    }
}

/// Takes leave of a tenure that is over, so that nothing of it stays behind. Nobody waits for it:
/// the store has given the runs to others, or will.
fn leave(tenure: &Arc<Tenure>) {
    let tenure = Arc::clone(tenure);
    tokio::spawn(async move {
        if let Err(error) = tenure.leave().await {
            tracing::debug!(worker = %tenure.worker, %error, "no leave taken");
        }
    });
}

/// Gives back what is executed under a tenure in a store that is another by now, as a shutdown does: bodies
/// finish, and what they are is recorded, if what they rest on is there. Whoever claims the runs replays
/// what the store has.
fn give_all_back(tenure: &Arc<Tenure>, grace: Duration) {
    tracing::warn!(
        worker = %tenure.worker,
        "the database is served by another server, or by an earlier state of it, and may lack what it had \
         acknowledged; the worker gives its runs back and joins again under a new id",
    );
    tenure.leaves();
    tenure.crew.stop_all(Stop::Release);
    let tenure = Arc::clone(tenure);
    tokio::spawn(async move {
        if tokio::time::timeout(grace, tenure.crew.emptied()).await.is_err() {
            tenure.crew.stop_all(Stop::Drop);
        }
        leave(&tenure);
    });
}

/// Resolves when the worker is told to stop. A worker whose handle was dropped is never told.
async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        std::future::pending().await
    }
}

async fn join_again(
    shared: &Arc<Shared>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<Arc<Tenure>> {
    loop {
        match shared.join().await {
            Ok(tenure) => return Some(tenure),
            Err(error) => tracing::warn!(%error, "cannot join the store again yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(OUTAGE_PAUSE) => {}
            () = told_to_stop(stopped) => return None,
        }
    }
}

struct Claiming<'a> {
    shared: &'a Arc<Shared>,
    tenure: &'a Arc<Tenure>,
    ticket: i64,
    intake: Intake,
    /// Where the store and the crew did not agree at the last renewal.
    odds: Odds,
}

impl<'a> Claiming<'a> {
    fn new(shared: &'a Arc<Shared>, tenure: &'a Arc<Tenure>) -> Self {
        Self { shared, tenure, ticket: 1, intake: Intake::new(), odds: Odds::default() }
    }

    /// Claims until the lease is lost, or means nothing any more: a store that forgot a claim, as
    /// after a failover to a replica that lagged, gives the same lease again, and two drivers could
    /// write under it.
    async fn keep_claiming(&mut self) {
        loop {
            let hint = self.shared.store.wait(Topic::Work);
            let (shared, tenure) = (self.shared, self.tenure);
            let freed = tenure.crew.freed();
            let (mode, limit) = self.intake.choose(&tenure.crew);
            let claims = match self.claim(mode, limit).await {
                Ok(claims) => claims,
                Err(store::Error::LeaseLost) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot claim; again soon");
                    tokio::time::sleep(OUTAGE_PAUSE).await;
                    continue;
                }
            };
            if claims.runs.iter().any(|claimed| tenure.crew.holds(claimed.lease)) {
                tracing::error!(worker = %tenure.worker, "the store has forgotten a claim");
                return;
            }
            self.note(mode, &claims);
            let (more, next_due) = (claims.more, claims.next_due);
            let sought = more || mode == ClaimMode::Suspect;
            let missed = limit > 0 && claims.runs.is_empty() && sought;
            self.take(claims);
            self.compare();
            let (_, limit) = self.intake.choose(&tenure.crew);
            let is_due = limit > 0 && self.intake.is_due(more);
            if is_due && !missed {
                continue;
            }
            let look_in = match tenure.crew.is_empty() {
                _ if is_due => MISSED_PAUSE,
                true => shared.store.idle_look_every(),
                false => MARKS_EVERY,
            };
            let clock = shared.store.clock();
            // Without a next time there is nothing on the clock to wait for.
            let due = next_due.unwrap_or_else(|| clock.now());
            let full = limit == 0;
            let held_back = full || more || !self.intake.is_open();
            let mut woken = pin!(async {
                tokio::select! {
                    // With every place taken a hint leads to nothing; the next free place does. And
                    // a free place leads to nothing where nothing is held back.
                    () = hint, if !full => {}
                    () = freed, if held_back => {}
                    () = clock.sleep_until(due), if !full && next_due.is_some() => {}
                    () = tokio::time::sleep(look_in) => {}
                }
            });
            loop {
                tokio::select! {
                    () = &mut woken => break,
                    () = tenure.next_renewal() => self.compare(),
                }
            }
        }
    }

    /// Compares what the worker holds, by the last renewal, with what its crew executes. Only while no
    /// claim is unanswered, whose runs are not entered yet; and what is odd twice in a row has not just
    /// been claimed, started or settled.
    fn compare(&mut self) {
        let Some(held) = self.tenure.take_held() else { return };
        let odds = self.tenure.crew.odds(&held);
        for lease in odds.unexecuted.intersection(&self.odds.unexecuted) {
            tracing::error!(
                run = %lease.run,
                "the worker holds a run but does not execute it; releasing it"
            );
            self.shared.give_back(self.tenure, *lease);
        }
        for lease in odds.ungiven.intersection(&self.odds.ungiven) {
            tracing::error!(
                run = %lease.run,
                "the worker executes a run but does not hold it; dropping it"
            );
            self.tenure.crew.stop(*lease, Stop::Drop);
        }
        self.odds = odds;
        self.tenure.crew.doubt_the_still(STILL_LEASES * RENEWALS_PER_LEASE);
    }

    async fn claim(&mut self, mode: ClaimMode, limit: usize) -> Result<Claims, store::Error> {
        let claim = Claim {
            worker: self.tenure.worker,
            ticket: self.ticket,
            build: self.shared.build.to_string(),
            queues: self.shared.queues.clone(),
            workflows: self.shared.workflows.clone(),
            limit,
            mode,
        };
        let claims = self.shared.store.claim(claim).await?;
        // Only an answered claim uses up its ticket: a lost answer is asked for again.
        self.ticket += 1;
        Ok(claims)
    }

    /// Notes what a claim says about suspects and about what is left in the queue.
    fn note(&mut self, mode: ClaimMode, claims: &Claims) {
        self.intake.heed(mode, claims);
        let shut = claims.more || !self.intake.is_open();
        self.shared.intake_shut.store(shut, Ordering::SeqCst);
    }

    fn take(&self, claims: Claims) {
        for mark in claims.marks {
            let stop = match mark.asks {
                Asks::End => Stop::Cancel,
                Asks::Pause => Stop::Release,
            };
            self.tenure.crew.stop(mark.lease, stop);
        }
        for claimed in claims.runs {
            // A place that was reserved meanwhile leaves the claimed run without one; it takes a
            // place above the limit rather than wait while it is held.
            let place = self.tenure.crew.take_place_for_claimed();
            let build = Arc::clone(&self.shared.build);
            let reserved = Reserved { place, tenure: Arc::clone(self.tenure), build };
            self.shared.execute(reserved, Box::new(claimed));
        }
    }
}
