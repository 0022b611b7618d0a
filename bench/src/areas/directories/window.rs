//! The window of a scan in the notation of the proposal of 2014: `v16384d10000` is 16384 pages of
//! buffer and 10000 entries at a time.

use std::fmt;
use std::str::FromStr;

use nowait::residency::page_size;
use nowait::scan;

/// The limits of a scan. A part that is missing has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The default of the library.
    Default,
    Limits {
        pages: Option<u64>,
        entries: Option<u64>,
    },
}

impl Window {
    /// Sets the window of a scan.
    pub fn set(self, options: scan::Options) -> scan::Options {
        let limit =
            |n: Option<u64>| n.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        match self {
            Window::Default => options,
            Window::Limits { pages, entries } => {
                let bytes = pages.map(|pages| pages.saturating_mul(page_size()));
                options.max_buffered(limit(entries), limit(bytes))
            }
        }
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Window, String> {
        if text == "default" {
            return Ok(Window::Default);
        }
        let limits = || {
            let (pages, entries) = match text.strip_prefix('v') {
                Some(rest) => match rest.split_once('d') {
                    Some((pages, entries)) => (Some(pages), Some(entries)),
                    None => (Some(rest), None),
                },
                None => (None, Some(text.strip_prefix('d')?)),
            };
            let number = |digits: Option<&str>| match digits.map(str::parse) {
                None => Some(None),
                Some(Ok(n @ 1..)) => Some(Some(n)),
                Some(_) => None,
            };
            Some(Window::Limits {
                pages: number(pages)?,
                entries: number(entries)?,
            })
        };
        limits().ok_or_else(|| {
            format!(
                "`{text}` is no window: write `default`, or v and a number of pages, or d and a \
                 number of entries, or both, such as v16384d10000"
            )
        })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Window::Default => f.write_str("default"),
            Window::Limits { pages, entries } => {
                pages.map_or(Ok(()), |n| write!(f, "v{n}"))?;
                entries.map_or(Ok(()), |n| write!(f, "d{n}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_parsed_and_printed() {
        for text in ["default", "v256", "d1000", "v16384d10000"] {
            assert_eq!(text.parse::<Window>().unwrap().to_string(), text);
        }
        for text in ["", "v", "d", "v0d1", "v1d", "d1v1", "16384", "v-1"] {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }
}
