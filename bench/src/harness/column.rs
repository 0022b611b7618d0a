//! The columns of a table, which show figures of contenders.

use super::cell::{Cell, Contender, at, more_is_better};
use super::table::{Entry, Table};
use super::text::digits;

/// One column of a table: the text that it shows of a contender.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// The median of a figure, multiplied by a scale.
    Median(&'static str, &'static str, f64),
    /// The median of a figure, without decimals.
    Whole(&'static str, &'static str),
    /// The smallest and the largest value of a figure over the rounds, multiplied by a scale.
    Range(&'static str, f64),
    /// The ratio of a figure to that of the base, with its range.
    Ratio(&'static str, &'static str),
    /// The ratio of a figure to that of the base, without its range.
    Short(&'static str, &'static str),
    /// The ratio of the figure of the named contender to that of each other contender.
    Inverse(&'static str, &'static str, &'static str),
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
    /// A table of a cell: a row for each contender, without columns that are empty. `class` is a
    /// prefix of the figures' paths, for example `classes/f1/`.
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
        let heads: Vec<String> = columns().map(|column| column.title(base)).collect();
        Table::new(title, heads, cell.contenders.iter().map(row).collect())
    }

    /// A table of one figure, multiplied by a scale: a row for each cell with the figure of each
    /// contender, then its ratios.
    pub fn of_figure(title: &str, figure: &str, scale: f64, cells: &[Cell]) -> Table {
        let first = cells.first();
        let names = first.into_iter().flat_map(|cell| &cell.contenders);
        let names: Vec<&String> = names.map(|contender| &contender.name).collect();
        let ratios: Vec<&String> = first
            .into_iter()
            .flat_map(|cell| cell.ratios.keys())
            .collect();
        let row = |cell: &Cell| {
            let figures = names.iter().map(|name| {
                let median = cell.contender(name).and_then(|c| c.figure(figure));
                Entry::figure(median.map(|x| x * scale))
            });
            let ratios = ratios.iter().map(|pair| {
                let ratio = cell.ratios.get(*pair);
                let interval = ratio.and_then(|ratio| ratio.figures.get(figure).copied());
                Entry::ratio(interval, more_is_better(figure))
            });
            let name = Entry::from(cell.name.as_str());
            std::iter::once(name).chain(figures).chain(ratios).collect()
        };
        let heads = names.iter().chain(&ratios);
        Table::new(title, heads, cells.iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::harness::text::Paint;
    use nowait_cli::interval::Verdict;

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
            text.contains(
                "| nowait | 3.00 | 3.00-3.00 | 2.00 (2.00-2.00) | **2.00 (2.00-2.00)** |"
            ),
            "{text}"
        );
    }
}
