//! How far a long command has come, on stderr.
//!
//! Owns: the bar on a terminal, and the line now and then where there is none.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// How often the bar moves by itself.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// A bar or, without a terminal, lines.
pub(crate) struct Progress {
    bar: ProgressBar,
    line_at: Instant,
}

impl Progress {
    /// A bar towards a number of things that are counted.
    pub(crate) fn counted(total: u64) -> Self {
        let template = "  {prefix:<22} {bar:28}  {msg} of {len}";
        Self::new(ProgressBar::new(total).with_style(style(template)))
    }

    /// A bar towards a total of which only the share is of interest; without one, a sign of life.
    pub(crate) fn share(total: Option<u64>) -> Self {
        Self::new(match total {
            Some(total) => {
                ProgressBar::new(total).with_style(style("  {bar:28} {percent:>3} %  {msg}"))
            }
            None => ProgressBar::new_spinner().with_style(style("  {spinner} {msg}")),
        })
    }

    fn new(bar: ProgressBar) -> Self {
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK_EVERY);
        }
        Self { bar, line_at: Instant::now() }
    }

    /// Says in front of the bar what goes on.
    pub(crate) fn name(&self, name: impl Into<String>) {
        let name = name.into();
        if self.bar.is_hidden() {
            anstream::eprintln!("  {name}");
        }
        self.bar.set_prefix(name);
    }

    /// Moves to `done`, and says so.
    pub(crate) fn set(&mut self, done: u64, message: String) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.line_at.elapsed() >= LINE_EVERY {
            self.line_at = Instant::now();
            anstream::eprintln!("  {message}");
        }
        self.bar.set_message(message);
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─")
}
