//! A bar on standard error, for people who have waited for more than a second. It is drawn only
//! when told to, never by a thread of its own: that would be measured too.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bar; it goes when this is dropped.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
    shown: bool,
}

impl Progress {
    /// For so many bytes.
    pub fn of_bytes(total: u64) -> Progress {
        Progress::new(
            total,
            "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}",
        )
    }

    /// For files of which nobody knows how many there are.
    pub fn of_files() -> Progress {
        Progress::of_unknown("{pos} files {per_sec} {msg}")
    }

    /// For inodes, the same.
    pub fn of_inodes() -> Progress {
        Progress::of_unknown("{pos} inodes {per_sec} {msg}")
    }

    fn of_unknown(template: &str) -> Progress {
        let progress = Progress::new(0, template);
        progress.bar.unset_length();
        progress
    }

    /// For so many turns.
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

    /// So much is done, and this comes next.
    pub fn at(&mut self, done: u64, message: String) {
        if !self.shown && self.since.elapsed() > Duration::from_secs(1) {
            self.shown = true;
            // Draws nothing unless standard error is a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
        self.bar.set_message(message);
    }

    /// A second handle, by which remarks make room for themselves.
    pub fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
