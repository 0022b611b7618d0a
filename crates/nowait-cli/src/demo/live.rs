//! The results so far on a terminal: a line for each contender.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::contender::Contender;
use super::report::{Thousands, label};
use super::way::Way;

/// Lines on standard error, if it is a terminal. They are drawn between the turns, and dropping
/// them clears them.
pub struct Live {
    lines: MultiProgress,
    bars: [ProgressBar; Contender::ALL.len()],
}

impl Live {
    pub fn new(way: Way, rounds: u32) -> Live {
        let style = ProgressStyle::with_template("{prefix:36} [{bar:20}] {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let lines = MultiProgress::new();
        let bars = Contender::ALL.map(|contender| {
            let bar = lines.add(ProgressBar::new(rounds.into()).with_style(style.clone()));
            let state = match way {
                Way::Cached => "cached",
                Way::Cold => "not cached",
            };
            bar.set_prefix(format!("{state}: {}", label(contender, way)));
            bar.tick();
            bar
        });
        Live { lines, bars }
    }

    /// Shows the rate of a contender's last turn. `index` is the contender's place in the table.
    pub fn show(&self, index: usize, reads_per_s: f64) {
        self.bars[index].set_message(format!("{} reads/s", Thousands(reads_per_s)));
        self.bars[index].inc(1);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for bar in &self.bars {
            bar.finish_and_clear();
        }
        let _ = self.lines.clear();
    }
}
