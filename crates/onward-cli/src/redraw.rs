//! `--watch`: the same look again and again.
//!
//! Owns: the pause, and the clean screen before each look. Without a terminal each is printed below
//! the one before.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::output;
use crate::problem::{Exit, Problem};

/// What makes a terminal empty: to the upper left corner, and all below it away.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// The shortest and the longest pause, in seconds.
const SECONDS: std::ops::RangeInclusive<u64> = 1..=3_600;

/// A pause in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    let wrong = || format!("write --watch=N with {} to {} seconds", SECONDS.start(), SECONDS.end());
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

/// Looks until somebody interrupts it, or the first look fails. A later one that fails is told, and
/// the next is awaited: a server that is restarted comes back.
pub(crate) async fn repeat(
    every: Duration,
    mut look: impl AsyncFnMut() -> Result<Exit, Problem>,
) -> Result<Exit, Problem> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut is_first = true;
    loop {
        if is_terminal {
            let mut out = output::stdout();
            write!(out, "{CLEAR}")?;
            out.flush()?;
        }
        match look().await {
            Err(problem) if is_first || matches!(problem, Problem::OutputClosed) => {
                return Err(problem);
            }
            Err(problem) => problem.print(),
            Ok(_) => is_first = false,
        }
        tokio::time::sleep(every).await;
    }
}
