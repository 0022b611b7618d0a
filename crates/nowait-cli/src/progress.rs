//! A progress bar on standard error, shown after one second. It is drawn only by calls of
//! [`Progress::at`]: a drawing thread would disturb measurements.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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

    /// A counter of files whose total number is unknown.
    pub fn of_files() -> Progress {
        Progress::of_unknown("{pos} files {per_sec} {msg}")
    }

    /// A counter of inodes whose total number is unknown.
    pub fn of_inodes() -> Progress {
        Progress::of_unknown("{pos} inodes {per_sec} {msg}")
    }

    fn of_unknown(template: &str) -> Progress {
        let progress = Progress::new(0, template);
        progress.bar.unset_length();
        progress
    }

    /// A bar for `total` turns.
    pub fn of_turns(total: u64) -> Progress {
        Progress::new(total, "[{bar:30}] {pos}/{len} {msg}")
    }

    fn new(total: u64, template: &str) -> Progress {
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        Progress {
            bar: bar.with_style(style),
            since: Instant::now(),
            shown: false,
        }
    }

    /// Sets the position and the message, and draws the bar if it is shown.
    pub fn at(&mut self, done: u64, message: String) {
        if !self.shown && self.since.elapsed() > Duration::from_secs(1) {
            self.shown = true;
            // Draws nothing unless standard error is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
        self.bar.set_message(message);
    }

    /// A second handle to the bar, used to clear it while a message is printed.
    pub fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
