//! Times of files, printed as find(1) and du(1) print them.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

use chrono::{DateTime, Local, TimeZone};
use nowait::{Metadata, StatxMask};

/// One of the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Accessed,
    Changed,
    Modified,
    Created,
}

/// The form in which a time is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// Seconds since 1970, with a fraction.
    Epoch,
    /// As ctime(3), with a fraction.
    Ctime,
    /// Date, hour and minute: the format long-iso of ls(1) and du(1).
    LongIso,
    /// By one conversion of strftime(3), or `+` for date and time.
    Strftime(char),
}

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl Which {
    /// The field of statx(2).
    pub fn mask(self) -> StatxMask {
        match self {
            Which::Accessed => StatxMask::ATIME,
            Which::Changed => StatxMask::CTIME,
            Which::Modified => StatxMask::MTIME,
            Which::Created => StatxMask::BTIME,
        }
    }

    /// The time of a file.
    pub fn of(self, metadata: &Metadata) -> Option<Time> {
        let (seconds, nanoseconds) = match self {
            Which::Accessed => (metadata.atime(), metadata.atime_nsec()),
            Which::Changed => (metadata.ctime(), metadata.ctime_nsec()),
            Which::Modified => (metadata.mtime(), metadata.mtime_nsec()),
            Which::Created => {
                let created = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
                (
                    i64::try_from(created.as_secs()).ok()?,
                    created.subsec_nanos().into(),
                )
            }
        };
        Some(Time {
            seconds,
            nanoseconds,
        })
    }
}

impl Time {
    /// The time in this form, in the local time zone. A year that no calendar has is printed in
    /// seconds.
    pub fn print(self, format: TimeFormat) -> String {
        // find prints ten digits; the last one is always 0.
        let fraction = format!("{:09}0", self.nanoseconds);
        let local = Local.timestamp_opt(self.seconds, 0).single();
        match (format, local) {
            (TimeFormat::Ctime, Some(at)) => by(&at, &format!("%a %b %e %H:%M:%S.{fraction} %Y")),
            (TimeFormat::LongIso, Some(at)) => by(&at, "%Y-%m-%d %H:%M"),
            (TimeFormat::Strftime('+'), Some(at)) => {
                by(&at, &format!("%Y-%m-%d+%H:%M:%S.{fraction}"))
            }
            (TimeFormat::Strftime(letter), Some(at)) => by(&at, &format!("%{letter}")),
            _ => format!("{}.{fraction}", self.seconds),
        }
    }
}

fn by(at: &DateTime<Local>, format: &str) -> String {
    let mut text = String::new();
    // Fails only for an unknown conversion.
    let _ = write!(text, "{}", at.format(format));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_beyond_any_calendar_are_printed_in_seconds() {
        let time = Time {
            seconds: i64::MAX,
            nanoseconds: 5,
        };
        assert_eq!(
            time.print(TimeFormat::Ctime),
            format!("{}.0000000050", i64::MAX)
        );
    }
}
