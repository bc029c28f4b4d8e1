//! How a start is gathered with others of its key.
//!
//! Owns: [`Gathering`], what a caller asks for, and its checks. Never decides what a gathered start does;
//! the store does, by `store::gather`.

use std::time::Duration;

use crate::clock::millis;
use crate::store::Gather;
use crate::{Code, Error};

/// What a caller asked for, before it is known to make sense.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gathering {
    pub(super) debounce: Option<Duration>,
    pub(super) debounce_max: Option<Duration>,
    pub(super) throttle: Option<Duration>,
}

/// Whether a start has a key, and how long that is kept, if not as long as its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyed {
    Yes(Option<Duration>),
    No,
}

impl Gathering {
    /// How starts are gathered; nothing when they are not.
    pub(super) fn of(&self, keyed: Keyed) -> Result<Option<Gather>, Error> {
        let wrong = |about: &str| Err(Error::new(Code::InvalidOption).about(about));
        let gather = match (self.debounce, self.debounce_max, self.throttle) {
            (None, None, None) => return Ok(None),
            (Some(quiet), max, None) => {
                Gather::Debounce { ms: millis(quiet), max_ms: max.map(millis) }
            }
            (None, None, Some(period)) => Gather::Throttle { ms: millis(period) },
            (Some(_), _, Some(_)) => return wrong("a start is debounced or throttled, not both"),
            (None, Some(_), _) => return wrong("debounce_max is for a start with debounce"),
        };
        match keyed {
            Keyed::No => wrong("debounce and throttle go by the key, and this start has none"),
            Keyed::Yes(ttl) => self.check_kept(ttl).map(|()| Some(gather)),
        }
    }

    /// A key that is free before the time is over lets a second run begin within it.
    fn check_kept(&self, ttl: Option<Duration>) -> Result<(), Error> {
        let debounce = self.debounce.map(|quiet| ("debounce", quiet));
        let longest = self.debounce_max.map(|total| ("debounce_max", total)).or(debounce);
        let longest = longest.or(self.throttle.map(|period| ("throttle", period)));
        let (Some(ttl), Some((name, time))) = (ttl, longest) else { return Ok(()) };
        if ttl >= time {
            return Ok(());
        }
        let about = format!(
            "key_ttl is {ttl:?} and {name} is {time:?}: the key would be free before that time is over, and \
             another start would make a second run; leave key_ttl out, or make it {time:?} or more"
        );
        Err(Error::new(Code::InvalidOption).about(about))
    }
}
