//! A line of the table.

use std::fmt;

use nowait::residency::Answer;

use super::row::{Looked, bytes};
use super::totals::Totals;
use crate::size::Size;

/// The cells of a line, but for the path.
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
    /// What the columns are.
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

    /// Of one file.
    pub fn of(looked: &Looked) -> Line {
        let size = Size(looked.size()).to_string();
        let Answer::Known { value, source } = looked.answer else {
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

    /// Of all files together, as far as it is known.
    pub fn of_all(totals: &Totals) -> Line {
        // What is known of some files is not known of all, but more than nothing.
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

/// The memory of so many pages.
fn memory(pages: Option<u64>) -> String {
    pages.map_or(UNKNOWN.into(), |pages| Size(bytes(pages)).to_string())
}

/// Never 100% of what is not whole, nor 0% of what is not nothing.
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
    fn all_and_none_are_said_of_nothing_else() {
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
