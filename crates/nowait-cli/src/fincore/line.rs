//! One line of the table.

use std::fmt;

use nowait::residency::Answer;

use super::row::{Examined, bytes};
use super::totals::Totals;
use crate::size::Size;

/// The cells of a line without the path.
pub struct Line {
    size: String,
    cached: String,
    share: String,
    dirty: String,
    writeback: String,
    source: String,
}

const UNKNOWN: &str = "?";

impl Line {
    /// The names of the columns.
    pub fn heading() -> Line {
        let [size, cached, share, dirty, writeback, source] =
            ["SIZE", "CACHED", "%", "DIRTY", "WRITEBACK", "SOURCE"].map(String::from);
        Line {
            size,
            cached,
            share,
            dirty,
            writeback,
            source,
        }
    }

    /// The line for one file.
    pub fn of(examined: &Examined) -> Line {
        let size = Size(examined.size()).to_string();
        let Answer::Known { value, source } = examined.answer else {
            let unknown = || UNKNOWN.to_owned();
            return Line {
                size,
                cached: unknown(),
                share: unknown(),
                dirty: unknown(),
                writeback: unknown(),
                source: unknown(),
            };
        };
        Line {
            size,
            cached: memory(Some(value.cached)),
            share: share(value.cached, value.pages),
            dirty: memory(value.dirty),
            writeback: memory(value.writeback),
            source: source.to_string(),
        }
    }

    /// The line for the total of all files.
    pub fn of_all(totals: &Totals) -> Line {
        // If only some files have known dirty pages, the sum is a lower bound.
        let at_least = |pages| match totals.dirty_unknown {
            0 => memory(Some(pages)),
            _ if totals.dirty_unknown == totals.files => memory(None),
            _ => format!("{}+", memory(Some(pages))),
        };
        Line {
            size: Size(totals.size).to_string(),
            cached: memory(Some(totals.cached)),
            share: share(totals.cached, totals.pages),
            dirty: at_least(totals.dirty),
            writeback: at_least(totals.writeback),
            source: String::new(),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line {
            size,
            cached,
            share,
            dirty,
            writeback,
            source,
        } = self;
        write!(
            f,
            "{size:>7} {cached:>7} {share:>5} {dirty:>7} {writeback:>9} {source:<9}"
        )
    }
}

/// The memory of a number of pages; `None` is unknown.
fn memory(pages: Option<u64>) -> String {
    pages.map_or(UNKNOWN.into(), |pages| Size(bytes(pages)).to_string())
}

/// The share in percent. 100% means all pages and 0% means none; other shares are not rounded to them.
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
    use super::share;

    #[test]
    fn only_exact_shares_are_100_or_0_percent() {
        for (cached, pages, said) in [
            (0, 0, "-"),
            (0, 1, "0%"),
            (1, 1, "100%"),
            (1, 1_000_000, "0.1%"),
            (999_999, 1_000_000, "99.9%"),
            (3, 10, "30.0%"),
        ] {
            assert_eq!(share(cached, pages), said, "{cached} of {pages}");
        }
    }
}
