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
use std::fs::File;
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
    let file = ground.open(cell.place.pattern)?;
    let mut trial = Trial::begin(ground, cell, &file)?;
    let delay = cell.delay_us.time();
    let gap = delay / WAITING;
    let end = trial.begun + ground.time;
    let mut next = Instant::now();
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(trial.count.tally());
        }
        let due = trial.waiting.front().map(|asked| asked.since + delay);
        if due.is_some_and(|due| now >= due) {
            trial.read(now)?;
        } else if now >= next && trial.refill.has_room() {
            next = now + gap;
            trial.ask(now)?;
        } else {
            rest(now, next, due.unwrap_or(end), &mut trial.refill);
        }
    }
}

/// A turn that runs.
struct Trial<'a> {
    ground: &'a Ground,
    cell: Cell,
    file: &'a File,
    probe: Probe<'a>,
    /// Reports if the content of a page has arrived.
    ready: Option<Probe<'a>>,
    refill: Refill,
    buffer: Vec<u8>,
    count: Counter,
    /// From here on, questions are counted.
    begun: Instant,
    /// The questions that wait for their read, in their order.
    waiting: VecDeque<Asked>,
    /// The number of the next question.
    number: u64,
}

impl<'a> Trial<'a> {
    fn begin(ground: &'a Ground, cell: Cell, file: &'a File) -> Result<Trial<'a>, Problem> {
        let block = cell.place.block;
        let probe = Probe::new(file)?;
        let ready = ground.ready(file)?;
        Ok(Trial {
            ground,
            cell,
            file,
            probe,
            refill: Refill::start(ground.open(cell.place.pattern)?, block),
            buffer: vec![0; block as usize],
            count: Counter::new(ready.is_some()),
            ready,
            begun: Instant::now() + ground.settling(),
            waiting: VecDeque::new(),
            number: 0,
        })
    }

    /// Reads the pages of the oldest question that waits, and counts the question and the read.
    #[inline]
    fn read(&mut self, now: Instant) -> Result<(), Problem> {
        let Some(asked) = self.waiting.pop_front() else {
            return Ok(());
        };
        let whole = if asked.gone {
            None
        } else {
            Some(read_now(self.file, &mut self.buffer, asked.offset)?)
        };
        let took = now.elapsed();
        if whole != Some(true) {
            self.refill.bring(asked.offset);
        }
        if asked.since >= self.begun {
            self.count.read(&asked, whole, now, took);
        }
        Ok(())
    }

    /// Asks the next question. If the answer is yes, the question waits for its read; otherwise
    /// another thread reads the pages.
    #[inline]
    fn ask(&mut self, now: Instant) -> Result<(), Problem> {
        let block = self.cell.place.block;
        let offset = self.ground.offset(self.cell.place, self.number);
        self.number += 1;
        let yes = resident(&self.probe, offset, block)?;
        let since = Instant::now();
        let took = since - now;
        if yes {
            let ready = match &self.ready {
                Some(ready) => Some(resident(ready, offset, block)?),
                None => None,
            };
            let gone = self.cell.touch && !read_now(self.file, &mut self.buffer[..1], offset)?;
            self.waiting.push_back(Asked {
                offset,
                since,
                took,
                ready,
                gone,
            });
        } else {
            self.refill.bring(offset);
            if since >= self.begun {
                self.count.no(took);
            }
        }
        Ok(())
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
