//! Prints a run on standard output as JSON or as text.

use std::fmt::Write as _;
use std::io::{self, Write};

use nowait_cli::problem::Problem;
use serde::Serialize;

use super::cell::FEWEST;
use super::run::Run;
use super::text::{Paint, remark, wrapped};

/// Prints results on standard output as JSON or as text. A closed pipe is not an error.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn print(
    results: &impl Serialize,
    as_json: bool,
    text: impl FnOnce(Paint) -> String,
) -> Result<(), Problem> {
    let text = match as_json {
        true => serde_json::to_string_pretty(results).map_err(|e| Problem::of("JSON", e))? + "\n",
        false => text(Paint::look()),
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| {
            Problem::Failed(format!(
                "cannot print the results: {e}; send standard output to another file or filesystem"
            ))
        }),
    }
}

impl Run {
    /// The run as text.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = format!(
            "nowait-bench {} {} on {}\n",
            self.version, self.area, self.machine
        );
        for key in ["about", "cache"] {
            if let Some(words) = self.settings.get(key).and_then(|value| value.as_str()) {
                wrapped(&mut text, words);
            }
        }
        for table in &self.tables {
            let _ = write!(text, "\n{}", table.text(paint));
        }
        text.push('\n');
        let legend = self.settings.get("legend").and_then(|value| value.as_str());
        wrapped(&mut text, legend.unwrap_or("Medians over rounds."));
        if !self.cells.is_empty() && self.settings.contains_key("interval") {
            wrapped(&mut text, &self.ratios());
        }
        for cell in &self.cells {
            for absent in &cell.absent {
                remark(
                    &mut text,
                    paint,
                    &format!("{}: {}", absent.name, absent.why),
                );
            }
        }
        for note in &self.notes {
            remark(&mut text, paint, note);
        }
        if self.interrupted {
            remark(&mut text, paint, "interrupted; this is what was measured");
        }
        text
    }

    /// The run in Markdown: the command, the machine, a table for each cell, and the notes.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {}\n\n`{}` on {}\n",
            self.area, self.command, self.machine
        );
        for table in &self.tables {
            let _ = write!(text, "\n{}", table.markdown());
        }
        text.push('\n');
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        text
    }

    /// A sentence on the ratios and their ranges.
    fn ratios(&self) -> String {
        match self.coverage() {
            Some(coverage) => format!(
                "Ratios: median of the ratios within each round; the range holds the true median with \
                 {:.0} %{}.",
                coverage * 100.0,
                if coverage < 0.95 {
                    " (95 %: --rounds 6)"
                } else {
                    ""
                }
            ),
            None if self.cells.iter().any(|cell| cell.contenders.len() > 1) => {
                format!("No ratios: they need {FEWEST} rounds.")
            }
            None => "No ratios: there is one contender.".into(),
        }
    }
}
