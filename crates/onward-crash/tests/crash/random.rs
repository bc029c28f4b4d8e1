//! Random numbers that a seed repeats.

use std::time::SystemTime;

pub(crate) struct Random(u64);

impl Random {
    /// Seeded by `ONWARD_CRASH_SEED`, or by the time; says which, so that a failure can be repeated.
    pub(crate) fn from_environment() -> Self {
        let given = std::env::var("ONWARD_CRASH_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            since.as_secs() ^ u64::from(since.subsec_nanos())
        });
        println!("ONWARD_CRASH_SEED={seed}");
        Self(seed)
    }

    /// A number below `end` (splitmix64).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
