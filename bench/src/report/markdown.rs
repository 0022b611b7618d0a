//! The summary of a report in Markdown.

use std::fmt::Write as _;

use super::losses;
use super::proposals::PROPOSALS;
use super::results::{Outcome, Report};

impl Report {
    /// The summary: the published tables, those that were measured, and the losses.
    pub fn markdown(&self) -> String {
        let mut text = "# nowait: measured beside what programs use\n\n".to_owned();
        text += "Bold: a ratio whose whole range is on the worse side of 1.\n";
        for proposal in &PROPOSALS {
            let _ = write!(text, "\n# {}\n\n{}\n", proposal.title, proposal.about);
            for table in proposal.tables() {
                let source = table.source.as_deref().unwrap_or_default();
                let _ = write!(text, "\n> {source}\n\n{}", table.markdown());
            }
            for (part, outcome) in self.parts_of(proposal) {
                let _ = match outcome {
                    Outcome::Measured(run) => write!(text, "\n{}", run.markdown()),
                    Outcome::Skipped(why) => {
                        write!(text, "\n## {}\n\nNot measured: {why}\n", part.title)
                    }
                };
            }
        }
        text += "\n# Losses\n";
        for (part, run) in self.measured() {
            if let Some(table) = losses::table(run, part.title) {
                let _ = write!(text, "\n## {}\n\n{}", part.title, table.markdown());
            }
        }
        text
    }
}
