//! One turn of a cell: ask, wait, read, and count the races.
//!
//! ```text
//!   ask ─ no ──► another thread reads the page
//!    └─ yes ─► (has its content arrived?) ─► (touch) ─ miss ─► race
//!                                               └─► delay ─► NOWAIT read ─ miss ─► race
//! ```
//! More questions are asked during a delay, at equal intervals: otherwise a delay of 10 ms would
//! allow only a hundred questions per second. The time that each one really waits is measured.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nowait::residency::Probe;

use super::cell::{Cell, Costs, Tally};
use super::ground::{Ground, Refill, read_now, resident};
use crate::harness::percentiles::{histogram, nanoseconds, quantile};
use nowait_cli::problem::Problem;

/// The most questions that wait for their read at the same time.
const WAITING: u32 = 64;
/// Shorter waits spin, because a sleep ends late.
const SPUN: Duration = Duration::from_micros(100);

/// A question whose answer was yes.
struct Asked {
    offset: u64,
    /// The time of the answer.
    since: Instant,
    took: Duration,
    /// True if the content had arrived; `None` if mincore(2) is not reliable.
    ready: Option<bool>,
    /// True if the touch missed.
    gone: bool,
}

/// Asks questions for the time of a turn.
pub fn run(ground: &Ground, cell: Cell) -> Result<Tally, Problem> {
    let block = cell.place.block;
    let file = ground.open(cell.place.pattern)?;
    let probe = Probe::new(&file)?;
    let ready = ground.ready(&file)?;
    let mut refill = Refill::start(ground.open(cell.place.pattern)?, block);
    let mut buffer = vec![0; block as usize];
    let mut count = Counter::new(ready.is_some());
    let delay = cell.delay_us.time();
    let gap = delay / WAITING;

    let begun = Instant::now() + ground.settling();
    let end = begun + ground.time;
    let mut waiting: VecDeque<Asked> = VecDeque::new();
    let mut next = Instant::now();
    let mut number = 0;
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(count.tally());
        }
        let due = waiting.front().map(|asked| asked.since + delay);
        if due.is_some_and(|due| now >= due) {
            let Some(asked) = waiting.pop_front() else {
                continue;
            };
            let whole = if asked.gone {
                None
            } else {
                Some(read_now(&file, &mut buffer, asked.offset)?)
            };
            let took = now.elapsed();
            if whole != Some(true) {
                refill.bring(asked.offset);
            }
            if asked.since >= begun {
                count.read(&asked, whole, now, took);
            }
        } else if now >= next && refill.has_room() {
            next = now + gap;
            let offset = ground.offset(cell.place, number);
            number += 1;
            let yes = resident(&probe, offset, block)?;
            let since = Instant::now();
            let took = since - now;
            if yes {
                let ready = match &ready {
                    Some(ready) => Some(resident(ready, offset, block)?),
                    None => None,
                };
                let gone = cell.touch && !read_now(&file, &mut buffer[..1], offset)?;
                waiting.push_back(Asked {
                    offset,
                    since,
                    took,
                    ready,
                    gone,
                });
            } else {
                refill.bring(offset);
                if since >= begun {
                    count.no(took);
                }
            }
        } else {
            rest(now, next, due.unwrap_or(end), &mut refill);
        }
    }
}

/// Waits until the next read or question is due. A question is due only if the thread that reads
/// missing pages has room.
fn rest(now: Instant, next: Instant, due: Instant, refill: &mut Refill) {
    let has_room = refill.has_room();
    let until = if has_room { due.min(next) } else { due };
    let left = until.saturating_duration_since(now);
    if left <= SPUN {
        std::hint::spin_loop();
    } else if has_room {
        std::thread::sleep(left - SPUN / 2);
    } else {
        refill.wait(left - SPUN / 2);
    }
}

/// The counts and times of a turn so far.
struct Counter {
    tally: Tally,
    waited: Histogram<u64>,
    ask_yes: Histogram<u64>,
    ask_no: Histogram<u64>,
    read_all: Histogram<u64>,
    read_short: Histogram<u64>,
}

impl Counter {
    fn new(can_tell: bool) -> Counter {
        Counter {
            tally: Tally {
                early: can_tell.then_some(0),
                ..Tally::default()
            },
            waited: histogram(),
            ask_yes: histogram(),
            ask_no: histogram(),
            read_all: histogram(),
            read_short: histogram(),
        }
    }

    fn no(&mut self, took: Duration) {
        self.tally.asked += 1;
        self.ask_no.saturating_record(nanoseconds(took));
    }

    /// Counts a question whose answer was yes, after its read. `whole` is true if the read was
    /// complete, and `None` if the touch missed before.
    fn read(&mut self, asked: &Asked, whole: Option<bool>, at: Instant, took: Duration) {
        let tally = &mut self.tally;
        tally.asked += 1;
        tally.yes += 1;
        self.ask_yes.saturating_record(nanoseconds(asked.took));
        match whole {
            Some(true) => self.read_all.saturating_record(nanoseconds(took)),
            Some(false) => self.read_short.saturating_record(nanoseconds(took)),
            None => tally.at_touch += 1,
        }
        if whole.is_some() {
            self.waited.saturating_record(nanoseconds(at - asked.since));
        }
        if whole != Some(true) {
            tally.races += 1;
            if asked.ready == Some(false) {
                tally.early = tally.early.map(|n| n + 1);
            }
        }
    }

    fn tally(self) -> Tally {
        Tally {
            waited_us: quantile(&self.waited, 0.5).map(|ns| ns / 1e3),
            cost_ns: Costs {
                ask_yes: quantile(&self.ask_yes, 0.5),
                ask_no: quantile(&self.ask_no, 0.5),
                read_all: quantile(&self.read_all, 0.5),
                read_short: quantile(&self.read_short, 0.5),
            },
            ..self.tally
        }
    }
}
