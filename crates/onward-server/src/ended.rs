//! How many runs have ended since this server began.
//!
//! Owns: the end up to which each kind is counted, so that the counts only rise. Never counts an end
//! twice; one whose run is retried or deleted before it is looked at is not counted.

use onward::limits::ENDS_COUNTED_MAX;
use onward::store::{EndLook, Ends, Looks};
use onward::{RunId, RunState, Timestamp};
use tokio::sync::Mutex;

use crate::limits::{ENDS_LAG, ENDS_LOOKS_MAX};
use crate::problem::Problem;

/// The ends of each kind that were counted.
pub(crate) struct Ended(Mutex<Vec<Counted>>);

/// The ends of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) state: RunState,
    pub(crate) number: u64,
    last: (Timestamp, RunId),
}

impl Ended {
    /// None yet, and those from this time on are to be counted.
    pub(crate) fn since(now: Timestamp) -> Self {
        let last = (now, RunId::from_u128(0));
        let ends = RunState::ALL.into_iter().filter(|state| state.is_final());
        Self(Mutex::new(ends.map(|state| Counted { state, number: 0, last }).collect()))
    }

    /// Counts on, up to what is old enough to be seen whole. What is too much for one time is counted
    /// the next.
    pub(crate) async fn count(
        &self,
        looks: &dyn Looks,
        now: Timestamp,
    ) -> Result<Vec<Counted>, Problem> {
        let before = Timestamp::from_millis(now.as_millis() - ENDS_LAG.as_millis() as i64);
        let mut all = self.0.lock().await;
        for counted in all.iter_mut() {
            for _ in 0..ENDS_LOOKS_MAX {
                let (state, after) = (counted.state, counted.last);
                let look = EndLook { state, after, before, limit: ENDS_COUNTED_MAX };
                let Ends { number, last, more } = looks.ends(look).await?;
                counted.number += number;
                counted.last = last.unwrap_or(after);
                if !more {
                    break;
                }
            }
        }
        Ok(all.clone())
    }
}
