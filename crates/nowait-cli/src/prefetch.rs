//! The options and the output of verbs that read files into the page cache: `warm` and
//! `cache restore`.

mod limits;
mod report;

pub use limits::Limits;
pub use report::{JSON_FORMAT, print};

use std::time::Duration;

use indicatif::HumanDuration;
use nowait_page_cache as page_cache;

use crate::name::plural;
use crate::progress::Progress;
use crate::size::Size;

/// Shows how far a run is: a share of the bytes if their total is known.
pub fn show(progress: &mut Progress, run: page_cache::Progress) {
    let message = message(&run, progress.per_second());
    progress.at(run.done_bytes, message);
    if let Some(total) = run.total_bytes {
        progress.set_total(total);
    }
}

/// The message about a run that advances by `speed` bytes per second.
fn message(run: &page_cache::Progress, speed: f64) -> String {
    let rate = Size(run.bytes_per_s);
    let Some((total, percent)) = run.total_bytes.zip(run.percent()) else {
        let files = plural(run.files, "file");
        return format!("{files}, {} read, {rate}/s", Size(run.read_bytes));
    };
    let done = Size(run.done_bytes);
    // Rounded down: 100 % is the end, unless files have grown since they were counted.
    let percent = percent.floor();
    let left = run.left_bytes().and_then(|bytes| time_for(bytes, speed));
    let left = left.map_or(String::new(), |time| {
        format!(", {} left", HumanDuration(time))
    });
    format!("{done}/{} {percent} % {rate}/s{left}", Size(total))
}

/// The time for these bytes in whole seconds; `None` if it cannot be told.
fn time_for(bytes: u64, speed: f64) -> Option<Duration> {
    let seconds = (bytes as f64 / speed).ceil();
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: page_cache::Progress = page_cache::Progress {
        files: 1,
        read_bytes: 3 << 20,
        bytes_per_s: 2 << 20,
        done_bytes: 5 << 20,
        total_bytes: None,
        room_bytes: u64::MAX,
    };

    #[test]
    fn files_are_counted_until_the_total_is_known() {
        assert_eq!(message(&RUN, 1.0), "1 file, 3M read, 2M/s");
        let run = page_cache::Progress { files: 2, ..RUN };
        assert_eq!(message(&run, 1.0), "2 files, 3M read, 2M/s");
    }

    #[test]
    fn a_known_total_gives_a_percentage_and_the_time_that_is_left() {
        let of = |total_bytes, room_bytes, speed| {
            let total_bytes = Some(total_bytes);
            let run = page_cache::Progress {
                total_bytes,
                room_bytes,
                ..RUN
            };
            message(&run, speed)
        };
        let speed = f64::from(1 << 20);
        let all = u64::MAX;
        assert_eq!(
            of(15 << 20, all, speed),
            "5M/15M 33 % 2M/s, 10 seconds left"
        );
        assert_eq!(of(6 << 20, all, speed), "5M/6M 83 % 2M/s, 1 second left");
        assert_eq!(
            of((5 << 20) + 1, all, speed),
            "5M/5.0M 99 % 2M/s, 1 second left"
        );
        // The budget ends the reading in 4 seconds.
        assert_eq!(
            of(15 << 20, 4 << 20, speed),
            "5M/15M 33 % 2M/s, 4 seconds left"
        );
        for unknown in [0.0, f64::NAN, f64::MIN_POSITIVE] {
            assert_eq!(of(15 << 20, all, unknown), "5M/15M 33 % 2M/s");
        }
    }
}
