//! A progress bar on standard error, shown after one second. It is drawn only by calls of
//! [`Progress::at`]: a drawing thread would disturb measurements.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::name::plural;

/// A progress bar. Dropping it clears it from the terminal.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: bool,
}

impl Progress {
    /// A bar for `total` bytes.
    pub fn of_bytes(total: u64) -> Progress {
        Progress::new(
            total,
            "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}",
        )
    }

    /// A message about bytes whose total number is unknown, until [`set_total`](Progress::set_total).
    pub fn of_unknown_bytes() -> Progress {
        let progress = Progress::new(0, "{msg}");
        progress.bar.unset_length();
        progress
    }

    /// A counter of files whose total number is unknown.
    pub fn of_files() -> Progress {
        Progress::of_unknown("file")
    }

    /// A counter of inodes whose total number is unknown.
    pub fn of_inodes() -> Progress {
        Progress::of_unknown("inode")
    }

    fn of_unknown(noun: &'static str) -> Progress {
        let template = "{count} {per_sec} {msg}";
        let count = move |state: &ProgressState, out: &mut dyn Write| {
            // Writing to a string cannot fail.
            let _ = out.write_str(&plural(state.pos(), noun));
        };
        let progress = Progress::new(0, template);
        let style = style(template).with_key("count", count);
        progress.bar.set_style(style);
        progress.bar.unset_length();
        progress
    }

    /// A bar for `total` turns.
    pub fn of_turns(total: u64) -> Progress {
        Progress::new(total, "[{bar:30}] {pos}/{len} {msg}")
    }

    fn new(total: u64, template: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        Progress {
            bar: bar.with_style(style(template)),
            since: Instant::now(),
            shown: false,
        }
    }

    /// Returns true if progress of work that takes longer than a second is drawn: standard error is a
    /// terminal.
    pub fn is_visible() -> bool {
        std::io::stderr().is_terminal()
    }

    /// Shows a bar with this total number of bytes beside the message.
    pub fn set_total(&self, total: u64) {
        if self.bar.length() != Some(total) {
            self.bar.set_style(style("[{bar:20}] {msg}"));
            self.bar.set_length(total);
        }
    }

    /// The present speed: the advance of the position in a second, mostly that of the last 15 seconds, without
    /// the first second.
    pub fn per_second(&self) -> f64 {
        self.bar.per_sec()
    }

    /// Sets the position and the message, and draws the bar if it is shown.
    pub fn at(&mut self, done: u64, message: String) {
        if !self.shown && self.since.elapsed() > Duration::from_secs(1) {
            self.shown = true;
            // Draws nothing unless standard error is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            // Cached data at the beginning is not the speed of the rest.
            self.bar.reset_eta();
        }
        self.bar.set_message(message);
        self.bar.set_position(done);
    }

    /// A second handle to the bar, used to clear it while a message is printed.
    pub fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
