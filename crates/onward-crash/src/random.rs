//! Random numbers that a seed repeats.
//!
//! Owns: the numbers and the choice of a seed. They are for tests, not for secrets.

use std::time::SystemTime;

/// A row of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The row of this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by `ONWARD_CRASH_SEED`, or by the time; says which, so that a failure can be repeated.
    pub fn from_environment() -> Self {
        let given = std::env::var("ONWARD_CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(seed_of_now);
        println!("ONWARD_CRASH_SEED={seed}");
        Self(seed)
    }

    /// A number below `end` (splitmix64).
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A seed that no other time gives.
pub fn seed_of_now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() ^ u64::from(since.subsec_nanos())
}
