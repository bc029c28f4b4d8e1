//! A progress bar for each phase, on stderr.
//!
//! Owns: the bars on a terminal, which stay when their phase is over, and lines where there is none.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// How often the bar is drawn while nothing happens.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// The bar of one phase.
pub(crate) struct Bar {
    bar: ProgressBar,
    line_at: Instant,
}

impl Bar {
    pub(crate) fn begin(name: impl Into<String>, total: u64) -> Self {
        let style = ProgressStyle::with_template("  {prefix:<20} {bar:28.green} {pos:>5} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━━─");
        let bar = ProgressBar::new(total).with_style(style).with_prefix(name.into());
        bar.set_message(format!("of {total}"));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK_EVERY);
        }
        Self { bar, line_at: Instant::now() }
    }

    pub(crate) fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.line_at.elapsed() >= LINE_EVERY {
            self.line_at = Instant::now();
            self.print_line(&self.bar.message());
        }
    }

    /// Leaves the bar as it is, followed by the phase's result.
    pub(crate) fn end(self, result: &str) {
        if self.bar.is_hidden() {
            self.print_line(result);
        }
        self.bar.abandon_with_message(result.to_owned());
    }

    fn print_line(&self, text: &str) {
        anstream::eprintln!("  {:<20} {:>5} {text}", self.bar.prefix(), self.bar.position());
    }
}
