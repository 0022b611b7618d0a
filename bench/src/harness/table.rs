//! Tables of results, and their forms for terminals and for Markdown.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::text::{Paint, digits};
use nowait_cli::interval::{Interval, Verdict};

/// A table of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    /// The work that published these figures; `None`: they were measured in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Entry>>,
}

/// One entry of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl From<&str> for Entry {
    fn from(text: &str) -> Entry {
        Entry::from(text.to_owned())
    }
}

impl From<String> for Entry {
    fn from(text: String) -> Entry {
        Entry {
            text,
            verdict: None,
        }
    }
}

impl Entry {
    /// A figure, or a dash.
    pub fn figure(figure: Option<f64>) -> Entry {
        figure.map_or("-".into(), digits).into()
    }

    /// A ratio with its range; empty if there is none.
    pub fn ratio(ratio: Option<Interval>, more_is_better: bool) -> Entry {
        let Some(ratio) = ratio else {
            return Entry::default();
        };
        let [median, low95, high95] = [ratio.median, ratio.low95, ratio.high95].map(digits);
        Entry {
            text: format!("{median} ({low95}-{high95})"),
            verdict: ratio.verdict(more_is_better),
        }
    }
}

impl Table {
    /// A table whose first column has the title as its head.
    pub fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl ToString>,
        rows: Vec<Vec<Entry>>,
    ) -> Table {
        let columns = columns.into_iter().map(|column| column.to_string());
        Table {
            title: title.into(),
            source: None,
            columns: std::iter::once(String::new()).chain(columns).collect(),
            rows,
        }
    }

    /// The heads of the columns. An empty first one is the title.
    fn head(&self) -> Vec<String> {
        let mut head = self.columns.clone();
        if let Some(first) = head.first_mut().filter(|first| first.is_empty()) {
            first.clone_from(&self.title);
        }
        head
    }

    /// The table for a terminal: the first column to the left, the others to the right.
    pub fn text(&self, paint: Paint) -> String {
        let mut text = String::new();
        if let Some(source) = &self.source {
            let _ = writeln!(text, "{}", paint.bold(source));
        }
        let head = self.head();
        let width = |i: usize| {
            let rows = self.rows.iter().filter_map(|row| row.get(i));
            let widest = rows.map(|entry| entry.text.chars().count()).max();
            widest.unwrap_or(0).max(head[i].chars().count())
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let padded = |i: usize, text: &str| match i {
            0 => format!("{text:<0$}", widths[0]),
            _ => format!("  {text:>0$}", widths[i]),
        };
        let line: String = head.iter().enumerate().map(|(i, t)| padded(i, t)).collect();
        let _ = writeln!(text, "{}", paint.bold(line.trim_end()));
        for row in &self.rows {
            let entries = row.iter().enumerate();
            let line: String = entries
                .map(|(i, entry)| paint.verdict(&padded(i, &entry.text), entry.verdict))
                .collect();
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }

    /// The table in Markdown: bold are ratios whose whole range is on the worse side of 1.
    pub fn markdown(&self) -> String {
        let escaped = |text: &str| text.replace('|', "\\|");
        let line = |entries: Vec<String>| format!("| {} |\n", entries.join(" | "));
        let mut text = line(self.head().iter().map(|c| escaped(c)).collect());
        let rules = (0..self.columns.len()).map(|i| if i == 0 { "---" } else { "---:" });
        text += &line(rules.map(str::to_owned).collect());
        for row in &self.rows {
            let entry = |entry: &Entry| match entry.verdict {
                Some(Verdict::Worse) => format!("**{}**", escaped(&entry.text)),
                _ => escaped(&entry.text),
            };
            text += &line(row.iter().map(entry).collect());
        }
        text
    }
}
