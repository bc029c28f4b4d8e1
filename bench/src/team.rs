//! The processes that take a measure together, as their parent sees them.
//!
//! Owns: that all of them do their shares at the same time. Never knows what a share is; that is
//! `share`.

use std::time::{Duration, Instant};

use crate::bench::Fallible;
use crate::child::Child;
use crate::place::Place;
use crate::share;

/// Worker processes on one store, each with a share of the work.
pub(crate) struct Team {
    members: Vec<Child>,
}

impl Team {
    /// Starts the processes, each with so much at once, and waits until all of them serve.
    pub(crate) async fn start(
        place: &Place,
        role: &str,
        processes: usize,
        at_once: usize,
    ) -> Fallible<Self> {
        let mut members = Vec::new();
        for _ in 0..processes {
            members.push(Child::start(place, role, &[at_once]).await?);
        }
        Ok(Self { members })
    }

    /// Lets each of them do so much; how long it is until the last is done.
    pub(crate) async fn work(&mut self, each: usize) -> Fallible<Duration> {
        let begun = Instant::now();
        for member in &mut self.members {
            member.tell(&each.to_string()).await?;
        }
        for member in &mut self.members {
            member.line().await?;
        }
        Ok(begun.elapsed())
    }

    /// The times that they noted since they were last asked.
    pub(crate) async fn times(&mut self) -> Fallible<Vec<Duration>> {
        let mut times = Vec::new();
        for member in &mut self.members {
            member.tell(share::TIMES).await?;
            for nanos in member.line().await?.split_whitespace() {
                times.push(Duration::from_nanos(nanos.parse()?));
            }
        }
        Ok(times)
    }

    /// Lets them shut down.
    pub(crate) async fn end(self) -> Fallible<()> {
        for member in self.members {
            member.end().await?;
        }
        Ok(())
    }
}
