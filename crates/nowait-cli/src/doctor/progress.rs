//! A spinner on standard error, for people who have waited for more than a second.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// The spinner; it goes when this is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Hidden at first, and for good if nobody watches.
    pub fn start() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
            .with_style(indicatif::ProgressStyle::default_spinner());
        if std::io::stderr().is_terminal() {
            let bar = bar.downgrade();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(1));
                if let Some(bar) = bar.upgrade() {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(Duration::from_millis(100));
                }
            });
        }
        Progress(bar)
    }

    /// What is being done now.
    pub fn now(&self, what: &'static str) {
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
