//! The columns of the table, by the names of fincore(1) of util-linux.

use std::str::FromStr;

use nowait::residency::{Answer, Residency};
use serde_json::Value;

use super::row::{Row, bytes};
use super::totals::Totals;
use crate::name::DisplayPath;
use crate::selection;
use crate::size::Size;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Size,
    Res,
    Percent,
    Pages,
    FilePages,
    Dirty,
    DirtyPages,
    Writeback,
    WritebackPages,
    Evicted,
    EvictedPages,
    RecentlyEvicted,
    RecentlyEvictedPages,
    Source,
    File,
}

use Column::{
    Dirty, DirtyPages, Evicted, EvictedPages, File, FilePages, Pages, Percent, RecentlyEvicted,
    RecentlyEvictedPages, Res, Source, Writeback, WritebackPages,
};

/// All columns, with their names.
const NAMES: [(&str, Column); 15] = [
    ("SIZE", Column::Size),
    ("RES", Res),
    ("PERCENT", Percent),
    ("PAGES", Pages),
    ("FILE_PAGES", FilePages),
    ("DIRTY", Dirty),
    ("DIRTY_PAGES", DirtyPages),
    ("WRITEBACK", Writeback),
    ("WRITEBACK_PAGES", WritebackPages),
    ("EVICTED", Evicted),
    ("EVICTED_PAGES", EvictedPages),
    ("RECENTLY_EVICTED", RecentlyEvicted),
    ("RECENTLY_EVICTED_PAGES", RecentlyEvictedPages),
    ("SOURCE", Source),
    ("FILE", File),
];

/// The text for a value that is unknown.
const UNKNOWN: &str = "?";

/// The value of a column.
enum Cell {
    Unknown,
    /// A number of bytes, printed with a unit or without.
    Bytes(u64),
    Count(u64),
    Text(String),
    /// No value: the total has no source.
    None,
}

impl Column {
    /// The name.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find_map(|(name, column)| (*column == self).then_some(*name))
            .unwrap_or_default()
    }

    /// The heading: a short one for shares.
    fn heading(self) -> &'static str {
        match self {
            Percent => "%",
            column => column.name(),
        }
    }

    /// The width of the column with human-readable values, or `None` for the last one.
    fn width(self) -> Option<usize> {
        match self {
            Percent => Some(5),
            File => None,
            column => Some(column.name().len().max(7)),
        }
    }

    /// The value for a file.
    fn of(self, row: &Row) -> Cell {
        let examined = &row.examined;
        match (self, examined.answer) {
            (Column::Size, _) => Cell::Bytes(examined.size),
            (File, _) => Cell::None,
            (Source, Answer::Known { source, .. }) => Cell::Text(source.to_string()),
            (column, Answer::Known { value, .. }) => column.of_residency(&value),
            (_, Answer::Unknown(_)) => Cell::Unknown,
        }
    }

    fn of_residency(self, known: &Residency) -> Cell {
        let pages = |pages: Option<u64>| pages.map_or(Cell::Unknown, Cell::Count);
        let memory = |pages: Option<u64>| pages.map_or(Cell::Unknown, |n| Cell::Bytes(bytes(n)));
        match self {
            Res => memory(Some(known.cached)),
            Percent => Cell::Text(share(known.cached, known.pages)),
            Pages => pages(Some(known.cached)),
            FilePages => pages(Some(known.pages)),
            Dirty => memory(known.dirty),
            DirtyPages => pages(known.dirty),
            Writeback => memory(known.writeback),
            WritebackPages => pages(known.writeback),
            Evicted => memory(known.evicted),
            EvictedPages => pages(known.evicted),
            RecentlyEvicted => memory(known.recently_evicted),
            RecentlyEvictedPages => pages(known.recently_evicted),
            Column::Size | Source | File => Cell::None,
        }
    }

    /// The value for the total of all files.
    fn of_all(self, totals: &Totals) -> Cell {
        // If only some files have known dirty pages, the sum is a lower bound.
        let at_least = |pages| match totals.dirty_unknown {
            0 => Cell::Bytes(bytes(pages)),
            _ if totals.dirty_unknown == totals.files => Cell::Unknown,
            _ => Cell::Text(format!("{}+", Size(bytes(pages)))),
        };
        match self {
            Column::Size => Cell::Bytes(totals.size),
            Res => Cell::Bytes(bytes(totals.cached)),
            Percent => Cell::Text(share(totals.cached, totals.pages)),
            Pages => Cell::Count(totals.cached),
            FilePages => Cell::Count(totals.pages),
            Dirty => at_least(totals.dirty),
            Writeback => at_least(totals.writeback),
            _ => Cell::None,
        }
    }
}

/// The columns of a table, and the form of their values.
#[derive(Clone, Debug)]
pub struct Columns {
    columns: Vec<Column>,
    /// True if sizes are numbers of bytes.
    pub in_bytes: bool,
    /// True if columns are separated by one blank and not aligned.
    pub raw: bool,
}

impl Columns {
    /// These columns with human-readable, aligned values.
    pub fn new(list: &List) -> Columns {
        Columns {
            columns: list.0.clone(),
            in_bytes: false,
            raw: false,
        }
    }

    /// The columns that fit into a terminal, and leave space for names.
    pub fn fitting(width: usize) -> Columns {
        let mut columns = vec![Column::Size, Res, Percent, Dirty, Writeback, Source, File];
        // The least important ones first.
        for column in [Source, Writeback, Dirty] {
            let taken: usize = columns
                .iter()
                .filter_map(|c| c.width())
                .map(|n| n + 1)
                .sum();
            if taken + NAME_WIDTH > width {
                columns.retain(|other| *other != column);
            }
        }
        Columns::new(&List(columns))
    }

    /// The headings.
    pub fn headings(&self) -> String {
        self.line(|column| Cell::Text(column.heading().into()), "FILE")
    }

    /// The line for one file.
    pub fn row(&self, row: &Row) -> String {
        let name = DisplayPath(&row.path).to_string();
        // In raw output a blank would begin the next column; util-linux writes it like this.
        let name = if self.raw {
            name.replace(' ', "\\x20")
        } else {
            name
        };
        self.line(|column| column.of(row), &name)
    }

    /// The line for the total of all files.
    pub fn total(&self, totals: &Totals, name: &str) -> String {
        self.line(|column| column.of_all(totals), name)
    }

    /// The values for one file in JSON.
    pub fn json(&self, row: &Row) -> Vec<(String, Value)> {
        let columns = self.columns.iter().filter(|column| **column != File);
        let value = |column: Column| match column.of(row) {
            Cell::Unknown | Cell::None => Value::Null,
            Cell::Bytes(number) | Cell::Count(number) => number.into(),
            Cell::Text(text) => text.into(),
        };
        columns
            .map(|column| (column.name().to_ascii_lowercase(), value(*column)))
            .collect()
    }

    /// Returns true if the files' names are among the columns.
    pub fn has_names(&self) -> bool {
        self.columns.contains(&File)
    }

    fn line(&self, of: impl Fn(Column) -> Cell, name: &str) -> String {
        let mut line = String::new();
        for (at, &column) in self.columns.iter().enumerate() {
            if at > 0 {
                line.push(' ');
            }
            let text = match of(column) {
                _ if column == File => name.to_owned(),
                Cell::Unknown => UNKNOWN.to_owned(),
                Cell::Bytes(bytes) if self.in_bytes && bytes < u64::MAX => bytes.to_string(),
                Cell::Bytes(bytes) => Size(bytes).to_string(),
                Cell::Count(count) => count.to_string(),
                Cell::Text(text) => text,
                Cell::None => String::new(),
            };
            let is_last = at + 1 == self.columns.len();
            match column.width().filter(|_| !self.raw) {
                Some(width) if column == Source && !is_last => {
                    line.push_str(&format!("{text:<0$}", width.max(9)));
                }
                Some(width) if column != Source => line.push_str(&format!("{text:>width$}")),
                _ => line.push_str(&text),
            }
        }
        line
    }
}

/// The space for names that narrow tables leave, in columns of the terminal.
const NAME_WIDTH: usize = 16;

/// A list of columns.
#[derive(Clone, Debug)]
pub struct List(Vec<Column>);

impl List {
    /// All columns.
    pub fn all() -> List {
        List(NAMES.iter().map(|(_, column)| *column).collect())
    }
}

impl FromStr for List {
    type Err = String;

    fn from_str(list: &str) -> Result<List, String> {
        selection::parse(list, "column", &NAMES).map(List)
    }
}

/// The share in percent. 100% means all pages and 0% means none; other shares are not rounded to
/// them.
fn share(cached: u64, pages: u64) -> String {
    match (cached, pages) {
        (_, 0) => "-".into(),
        (0, _) => "0%".into(),
        (cached, pages) if cached >= pages => "100%".into(),
        (cached, pages) => {
            let percent = cached as f64 / pages as f64 * 100.0;
            format!("{:.1}%", percent.clamp(0.1, 99.9))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_shares_are_100_or_0_percent() {
        for (cached, pages, text) in [
            (0, 0, "-"),
            (0, 1, "0%"),
            (1, 1, "100%"),
            (1, 1_000_000, "0.1%"),
            (999_999, 1_000_000, "99.9%"),
            (3, 10, "30.0%"),
        ] {
            assert_eq!(share(cached, pages), text, "{cached} of {pages}");
        }
    }

    #[test]
    fn narrow_terminals_have_fewer_columns() {
        for (width, headings) in [
            (80, "   SIZE     RES     %   DIRTY WRITEBACK SOURCE    FILE"),
            (40, "   SIZE     RES     % FILE"),
            (1, "   SIZE     RES     % FILE"),
        ] {
            assert_eq!(Columns::fitting(width).headings(), headings);
        }
    }
}
