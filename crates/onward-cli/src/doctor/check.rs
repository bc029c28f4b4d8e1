//! Checks of the store itself: whether it is reached, its schema, clock, leases and schedules.
//!
//! Owns: what counts as wrong about each. Never looks at a run; `live` does.

use std::time::{Duration, SystemTime};

use onward::limits::SCHEDULE_GRACE;
use onward::{Timestamp, WorkerInfo};

use super::finding::Finding;
use crate::args::Global;
use crate::place::Place;
use crate::problem::Problem;
use crate::{open, text};

/// How far two clocks may differ before times on this machine mislead: a network's worth.
const SKEW_MAX: Duration = Duration::from_secs(2);

/// The place has answered.
pub(super) fn reached(place: &Place, global: &Global) -> Result<Finding, Problem> {
    Ok(match place.meta() {
        Some(meta) => {
            let (version, store, role) = (&meta.version, &meta.store, &meta.role);
            let said = format!("version {version} over {store}; this caller may {role}");
            Finding::well("server", format!("it answers: {said}"))
        }
        None => {
            let shown = open::shown(&global.store()?);
            Finding::well("store", format!("it opens: {shown}"))
        }
    })
}

/// A store that opens has the schema that this build wants; opening says so where it has not.
pub(super) fn schema(place: &Place) -> Finding {
    match place.meta() {
        Some(meta) if meta.version != env!("CARGO_PKG_VERSION") => Finding::bad(
            "schema",
            format!("the server is {}, this program {}", meta.version, env!("CARGO_PKG_VERSION")),
            "Use an onward of the server's version, or bring the server up to this one.",
        ),
        _ => Finding::well("schema", "it is the one that this version wants"),
    }
}

/// Leases, timers and ages are by the store's clock; people read their own.
pub(super) fn clock(place: &Place) -> Finding {
    let (ours, theirs) = (Timestamp::from(SystemTime::now()), place.now());
    let skew = if ours > theirs { ours.since(theirs) } else { theirs.since(ours) };
    if skew <= SKEW_MAX {
        return Finding::well("clock", "this machine and the store agree about the time");
    }
    let which = if ours > theirs { "ahead of" } else { "behind" };
    Finding::bad(
        "clock",
        format!("this machine is {} {which} the store", text::duration(skew)),
        "Let both take the time from the network (NTP). Leases hold by the store's clock alone, so \
         no run is lost; but --at and times in logs are off.",
    )
}

/// A standby that no commit waits for. A server does not tell of its database.
pub(super) async fn standbys(place: &Place) -> Result<Option<Finding>, Problem> {
    let Place::Store(onward) = place else { return Ok(None) };
    let count = onward.store().unawaited_standbys().await.map_err(onward::Error::from)?;
    Ok(unawaited(count))
}

fn unawaited(count: u64) -> Option<Finding> {
    let standbys = text::count(count, "standby server");
    (count > 0).then(|| {
        Finding::bad(
            "standbys",
            format!("the database has {standbys}, and commits wait for none"),
            "If one of them takes over, what was answered last is lost. Set synchronous_standby_names \
             (with Patroni: synchronous_mode), or read docs/operations.md about what that costs.",
        )
    })
}

/// A lease that has expired and that nobody took away.
pub(super) fn leases(workers: &[WorkerInfo], now: Timestamp) -> Vec<Finding> {
    let expired = |worker: &&WorkerInfo| worker.lease_until <= now;
    let found: Vec<_> = workers.iter().filter(expired).map(|worker| late(worker, now)).collect();
    match found.is_empty() {
        true if workers.is_empty() => vec![Finding::well("leases", "no worker is up")],
        true => {
            let up = text::count(workers.len() as u64, "worker");
            vec![Finding::well("leases", format!("{up} up, each with a lease that holds"))]
        }
        false => found,
    }
}

fn late(worker: &WorkerInfo, now: Timestamp) -> Finding {
    let ago = text::duration(now.since(worker.lease_until));
    let held = text::count(worker.running, "run");
    Finding::bad(
        "leases",
        format!(
            "worker {} at {} holds {held}, and its lease expired {ago} ago",
            worker.id, worker.place
        ),
        "Start a worker of any build: it takes over what others left within a lease and a second. \
         If one is up, look at its log: it cannot write to the store.",
    )
}

/// A schedule whose time has passed.
pub(super) async fn schedules(place: &Place) -> Result<Vec<Finding>, Problem> {
    let (all, now) = (place.schedules().await?, place.now());
    let mut found = Vec::new();
    for schedule in all.iter().filter(|schedule| schedule.paused_at.is_none()) {
        let Some(next_at) = schedule.next_at.filter(|at| now.since(*at) > SCHEDULE_GRACE) else {
            continue;
        };
        found.push(Finding::bad(
            "schedules",
            format!("schedule {:?} should have been fired at {next_at}", schedule.name),
            "Start a worker that was built with the library's feature 'schedules'.",
        ));
    }
    if found.is_empty() {
        let count = text::count(all.len() as u64, "schedule");
        found.push(Finding::well("schedules", format!("{count}, none of them overdue")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn standbys_that_nobody_waits_for_are_told_with_what_to_do() {
        assert!(unawaited(0).is_none());
        let found = unawaited(2).unwrap();
        assert!(!found.ok && found.found.contains("2 standby servers"), "{found:?}");
        assert!(found.todo.unwrap().contains("synchronous_standby_names"));
        let place = Place::Store(onward::Onward::open("memory:").await.unwrap());
        assert!(standbys(&place).await.unwrap().is_none());
    }
}
