//! A spinner on standard error, shown after one second.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// A spinner. Dropping it clears it from the terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A spinner that is hidden for one second, and always if standard error is not a terminal.
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

    /// Sets the message.
    pub fn now(&self, what: &'static str) {
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
