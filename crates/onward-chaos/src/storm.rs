//! The storm: what goes wrong, at random, over a crew of workers and their server.
//!
//! Owns: which deed comes when, that no kind is left out, and that everything is well again at its
//! end. The seed decides the order of deeds, their targets and their times; what the processes do
//! meanwhile, it cannot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onward_crash::random::Random;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::crew::Slot;
use crate::proxy::{Cut, Weather};
use crate::server::Server;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// A worker is killed with SIGKILL, and another is started in its place.
    Kill,
    /// A worker is stopped for longer than its lease, and continued.
    Stop,
    /// A worker's connections are cut.
    Cut,
    /// The answer to a worker's commit is lost, with the connection.
    Swallow,
    /// A worker's connections stay open, and nothing passes.
    BlackHole,
    /// A worker's connections are cut, and new ones refused.
    Refuse,
    /// A worker's connections are slow.
    Slow,
    /// The server is restarted.
    RestartServer,
    /// The server is killed with SIGKILL, and started again.
    KillServer,
}

/// Deeds to choose from, each with how often it comes against the others.
pub type Choice = [(Deed, u64)];

/// Everything that goes wrong.
pub const ALL: [(Deed, u64); 9] = [
    (Deed::Kill, 20),
    (Deed::Stop, 20),
    (Deed::Cut, 15),
    (Deed::Swallow, 30),
    (Deed::BlackHole, 6),
    (Deed::Refuse, 6),
    (Deed::Slow, 6),
    (Deed::RestartServer, 2),
    (Deed::KillServer, 2),
];

/// What a fence is for, and nothing else.
pub const STOPS: [(Deed, u64); 1] = [(Deed::Stop, 1)];

/// How often each deed was done.
pub type Deeds = BTreeMap<Deed, u64>;

/// A storm over a crew.
#[derive(Clone, Debug)]
pub struct Storm {
    /// The workers.
    pub slots: Vec<Arc<Slot>>,
    /// Their server.
    pub server: Arc<Mutex<Server>>,
    /// The workers' lease, which the longer deeds outlast.
    pub lease: Duration,
    /// The longest pause between two deeds.
    pub pause_max: Duration,
    /// What goes wrong.
    pub choice: &'static Choice,
}

impl Storm {
    /// Rages for this long, then lets everything be well again; gives what was done. Each kind of
    /// deed falls due once, in any order and spread over the time; between them come others by
    /// chance.
    pub async fn rage(&self, mut random: Random, time: Duration) -> Deeds {
        let begun = Instant::now();
        let mut owed = each_once(self.choice, &mut random);
        let (mut under_way, mut done) = (JoinSet::new(), Vec::new());
        while begun.elapsed() < time {
            let chosen = choose(self.choice, &mut random);
            let target = random.below(self.slots.len() as u64);
            let due_at = time.mul_f64(1.0 - owed.len() as f64 / self.choice.len() as f64);
            let due = owed.last().copied().filter(|_| begun.elapsed() >= due_at);
            // One that is due comes over whoever is free, and one by chance over its target alone.
            let reach = if due.is_some() { self.slots.len() } else { 1 };
            let from = usize::try_from(target).unwrap_or_default();
            let mut reached = self.slots.iter().cycle().skip(from).take(reach);
            if let Some(slot) = reached.find(|slot| slot.take()) {
                if due.is_some() {
                    owed.pop();
                }
                let act = self.clone().act(due.unwrap_or(chosen), Arc::clone(slot), random.clone());
                under_way.spawn(act);
            }
            let pause_ms = u64::try_from(self.pause_max.as_millis()).unwrap_or(u64::MAX).max(1);
            sleep(Duration::from_millis(random.below(pause_ms))).await;
            while let Some(ended) = under_way.try_join_next() {
                done.push(ended.ok().flatten());
            }
        }
        done.extend(under_way.join_all().await);
        let mut deeds = Deeds::new();
        done.into_iter().flatten().for_each(|deed| *deeds.entry(deed).or_default() += 1);
        deeds
    }

    /// Does it, and gives it back if it came about.
    async fn act(self, deed: Deed, slot: Arc<Slot>, mut random: Random) -> Option<Deed> {
        let moment = Duration::from_millis(random.below(500));
        let past_lease =
            self.lease.mul_f64(1.2) + self.lease.mul_f64(0.001 * random.below(1_500) as f64);
        let mut is_done = true;
        match deed {
            Deed::Kill => {
                is_done = slot.kill();
                sleep(moment).await;
                is_done &= slot.spawn().is_ok();
            }
            Deed::Stop => {
                is_done = slot.stop();
                sleep(past_lease).await;
                is_done &= slot.go_on();
            }
            Deed::Cut => slot.proxy.cut(any_cut(&mut random)),
            Deed::Swallow => {
                let passing = u32::try_from(random.below(8)).unwrap_or_default();
                let sprung = slot.proxy.swallow_commit(passing, any_cut(&mut random), is_write);
                let sprung = tokio::time::timeout(self.lease, sprung).await;
                is_done = matches!(sprung, Ok(Ok(_)));
            }
            Deed::BlackHole => {
                slot.proxy.black_hole();
                sleep(moment + past_lease / 2).await;
                slot.proxy.pass();
            }
            Deed::Refuse => {
                slot.proxy.refuse();
                sleep(moment + past_lease / 2).await;
                slot.proxy.pass();
            }
            Deed::Slow => {
                let delay = moment / 10;
                let weather = Weather { delay_up: delay, delay_down: delay, ..Weather::default() };
                slot.proxy.set(weather);
                sleep(past_lease).await;
                slot.proxy.pass();
            }
            Deed::RestartServer => is_done = self.restart(Server::stop).await,
            Deed::KillServer => is_done = self.restart(Server::kill).await,
        }
        slot.give_back();
        is_done.then_some(deed)
    }

    /// Ends the server and starts it again; whether it came back.
    async fn restart(&self, end: fn(&mut Server) -> std::io::Result<()>) -> bool {
        let server = Arc::clone(&self.server);
        let restarted = tokio::task::spawn_blocking(move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            end(&mut server).and_then(|()| server.start_again())
        });
        let restarted = restarted.await;
        if let Ok(Err(error)) = &restarted {
            eprintln!("the server does not come back: {error}");
        }
        matches!(restarted, Ok(Ok(())))
    }
}

/// Every kind of deed once, in an order of its own.
fn each_once(choice: &Choice, random: &mut Random) -> Vec<Deed> {
    let mut deeds: Vec<Deed> = choice.iter().map(|(deed, _)| *deed).collect();
    for last in (1..deeds.len()).rev() {
        let other = random.below(last as u64 + 1);
        deeds.swap(last, usize::try_from(other).unwrap_or_default());
    }
    deeds
}

fn choose(choice: &Choice, random: &mut Random) -> Deed {
    let mut left = random.below(choice.iter().map(|(_, weight)| weight).sum());
    for (deed, weight) in choice {
        if left < *weight {
            return *deed;
        }
        left -= weight;
    }
    Deed::Cut
}

fn any_cut(random: &mut Random) -> Cut {
    if random.below(2) == 0 { Cut::Reset } else { Cut::Finish }
}

/// Whether a transaction writes: by the store's functions for that, or by plain statements.
fn is_write(statements: &str) -> bool {
    let writes = [
        "settle(",
        "record(",
        "transact",
        "claim(",
        "start_runs(",
        "sweep(",
        "signal_alone(",
        "insert into",
        "update ",
    ];
    writes.iter().any(|word| statements.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_of_deed_is_left_out_and_the_seed_decides_their_order() {
        let order = |seed| each_once(&ALL, &mut Random::seeded(seed));
        let mut kinds = order(1);
        kinds.sort_unstable();
        assert_eq!(kinds, ALL.map(|(deed, _)| deed));
        assert_eq!(order(1), order(1));
        assert!((2..10).any(|seed| order(seed) != order(1)));
    }
}
