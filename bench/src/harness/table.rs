//! Tables of results, and their forms for terminals and for Markdown.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::run::{Cell, Contender, at, more_is_better};
use super::text::{Paint, digits};

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

/// A ratio whose whole range is on one side of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Better,
    Worse,
}

/// One column of a table: the text that it shows of a contender.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// The median of a figure, multiplied by a scale.
    Median(&'static str, &'static str, f64),
    /// The same, without decimals.
    Whole(&'static str, &'static str),
    /// The smallest and the largest value of a figure over the rounds, multiplied by a scale.
    Range(&'static str, f64),
    /// The ratio of a figure to that of the base, with its range.
    Ratio(&'static str, &'static str),
    /// The same, without the range.
    Short(&'static str, &'static str),
    /// The ratio of the figure of the named contender to that of each other contender.
    Inverse(&'static str, &'static str, &'static str),
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
        let Some(Interval {
            median,
            low95,
            high95,
        }) = ratio
        else {
            return Entry::default();
        };
        let verdict = match (low95 > 1.0, high95 < 1.0) {
            (true, _) if more_is_better => Some(Verdict::Better),
            (true, _) => Some(Verdict::Worse),
            (_, true) if more_is_better => Some(Verdict::Worse),
            (_, true) => Some(Verdict::Better),
            _ => None,
        };
        Entry {
            text: format!("{} ({}-{})", digits(median), digits(low95), digits(high95)),
            verdict,
        }
    }
}

impl Column {
    fn title(self, base: &str) -> String {
        match self {
            Column::Median(title, ..) | Column::Whole(title, _) => title.into(),
            Column::Range(..) => "min-max".into(),
            Column::Ratio(title, _) => format!("{title} x {base}").trim_start().into(),
            Column::Short(title, _) => format!("{title} x"),
            Column::Inverse(title, ..) => title.into(),
        }
    }

    fn entry(self, cell: &Cell, contender: &Contender, base: &str, class: &str) -> Entry {
        let path = |figure: &str| format!("{class}{figure}");
        match self {
            Column::Median(_, figure, scale) => {
                Entry::figure(contender.figure(&path(figure)).map(|x| x * scale))
            }
            Column::Whole(_, figure) => {
                let figure = contender.figure(&path(figure));
                figure.map_or("-".into(), |x| format!("{x:.0}")).into()
            }
            Column::Range(figure, scale) => {
                let each = contender.rounds.iter();
                let each: Vec<f64> = each.filter_map(|r| at(r, &path(figure))).collect();
                let end = |pick: fn(f64, f64) -> f64| each.iter().copied().reduce(pick);
                match (end(f64::min), end(f64::max)) {
                    (Some(min), Some(max)) => {
                        format!("{}-{}", digits(min * scale), digits(max * scale)).into()
                    }
                    _ => "-".into(),
                }
            }
            Column::Ratio(_, figure) => Entry::ratio(
                cell.ratio(&contender.name, base, &path(figure)),
                more_is_better(figure),
            ),
            Column::Inverse(_, name, figure) => Entry::ratio(
                cell.ratio(name, &contender.name, &path(figure)),
                more_is_better(figure),
            ),
            Column::Short(_, figure) => {
                let ratio = cell.ratio(&contender.name, base, &path(figure));
                ratio.map_or(String::new(), |r| digits(r.median)).into()
            }
        }
    }
}

impl Table {
    /// A table of a cell: a row for each contender, without columns that are empty. `class` is a prefix
    /// of the figures' paths, for example `classes/f1/`.
    pub fn of(title: &str, cell: &Cell, base: &str, class: &str, columns: &[Column]) -> Table {
        let shows = |column: &&Column| {
            let mut all = cell.contenders.iter();
            all.any(|c| !matches!(column.entry(cell, c, base, class).text.as_str(), "" | "-"))
        };
        let columns = || columns.iter().filter(shows);
        let row = |contender: &Contender| {
            let name = Entry::from(contender.name.as_str());
            let entries = columns().map(|column| column.entry(cell, contender, base, class));
            std::iter::once(name).chain(entries).collect()
        };
        Table {
            title: title.into(),
            source: None,
            columns: std::iter::once(String::new())
                .chain(columns().map(|column| column.title(base)))
                .collect(),
            rows: cell.contenders.iter().map(row).collect(),
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

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        let escaped = |text: &str| text.replace('|', "\\|");
        let line = |entries: Vec<String>| format!("| {} |\n", entries.join(" | "));
        let mut text = line(self.head().iter().map(|c| escaped(c)).collect());
        let rules = (0..self.columns.len()).map(|i| if i == 0 { "---" } else { "---:" });
        text += &line(rules.map(str::to_owned).collect());
        for row in &self.rows {
            let entry = |entry: &Entry| match entry.verdict {
                Some(_) => format!("**{}**", escaped(&entry.text)),
                None => escaped(&entry.text),
            };
            text += &line(row.iter().map(entry).collect());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Table {
        let mut cell = Cell::default();
        cell.add(
            "nowait",
            true,
            &vec![json!({"ops_per_s": 3000.0, "lat_us": {"p99": 2.0}}); 6],
        );
        cell.add(
            "pread",
            false,
            &vec![json!({"ops_per_s": 1500.0, "lat_us": {"p99": 1.0}}); 6],
        );
        cell.compare(&["ops_per_s", "lat_us/p99"], &[]);
        let columns = [
            Column::Median("kops/s", "ops_per_s", 1e-3),
            Column::Range("ops_per_s", 1e-3),
            Column::Whole("n", "missing"),
            Column::Ratio("", "ops_per_s"),
            Column::Ratio("p99", "lat_us/p99"),
        ];
        Table::of("4K", &cell, "pread", "", &columns)
    }

    #[test]
    fn a_table_for_a_terminal() {
        let want = "\
4K      kops/s    min-max           x pread       p99 x pread
nowait    3.00  3.00-3.00  2.00 (2.00-2.00)  2.00 (2.00-2.00)
pread     1.50  1.50-1.50
";
        assert_eq!(table().text(Paint::plain()), want);
    }

    #[test]
    fn a_range_on_one_side_of_1_is_a_verdict() {
        let verdicts: Vec<_> = table().rows[0].iter().map(|entry| entry.verdict).collect();
        let want = [
            None,
            None,
            None,
            Some(Verdict::Better),
            Some(Verdict::Worse),
        ];
        assert_eq!(verdicts, want);
    }

    #[test]
    fn a_table_in_markdown() {
        let text = table().markdown();
        assert!(
            text.starts_with("| 4K | kops/s | min-max | x pread | p99 x pread |\n| --- | ---: |")
        );
        assert!(
            text.contains("| nowait | 3.00 | 3.00-3.00 | **2.00 (2.00-2.00)** |"),
            "{text}"
        );
    }
}
