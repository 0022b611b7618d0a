//! One turn: one contender, one round. Sets the lanes (threads) off together, and measures.
//!
//! ```text
//!  main   ── lanes set up ── ready ─ usage ─ go ───────────────── join ─ usage ─► Round
//!  lane 0 ── set up ──────── ready ───────── go ─ loop ─ end ─────┘
//!  lane 1 ── set up ──────── ready ───────── go ─ loop ─ end ─────┘
//! ```
//! The same for every contender: the places to read, when to look at the clock, and which
//! operations are timed (every one, or one in so many).

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::class::{self, Class};
use super::draws::{CLASSES, F3};
use super::files::{Files, advise_random};
use super::offsets::{Offsets, Order};
use super::percentiles::{Percentiles, histogram, nanoseconds};
use super::place::Place;
use super::round::Round;
use super::settings::Amount;
use crate::harness::usage::Usage;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// The parameters of a turn.
pub struct Turn<'a> {
    pub files: &'a Files,
    pub block: u64,
    pub depth: usize,
    pub threads: usize,
    pub amount: Amount,
    pub order: Order,
    /// One operation in so many is timed.
    pub timed: u64,
    /// All contenders of a round have the same seed.
    pub seed: u64,
    pub stop: &'a Stop,
}

/// The two moments at which all lanes meet.
struct Start {
    ready: Barrier,
    go: Barrier,
}

/// One lane's way through both moments. A lane that fails before it begins passes them as it ends:
/// the other lanes must not wait for ever.
struct Gate<'a> {
    start: &'a Start,
    passed: bool,
}

impl Gate<'_> {
    fn pass(&mut self) {
        if !std::mem::replace(&mut self.passed, true) {
            self.start.ready.wait();
            self.start.go.wait();
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.pass();
    }
}

/// The results of one lane.
struct Finished {
    began: Instant,
    ended: Instant,
    ops: u64,
    tape: Tape,
    classes: Vec<class::Tape>,
}

impl Turn<'_> {
    /// How many blocks all files have together.
    pub fn blocks(&self) -> u64 {
        self.files.blocks(self.block).iter().sum()
    }

    /// Gives the advice of all contenders on file number `number`: no readahead, but for f3 of a
    /// mix.
    pub fn advise(&self, number: usize, file: impl AsFd) -> Result<(), Problem> {
        match self.order {
            Order::Mix(_) if number == F3 => Ok(()),
            _ => advise_random(file),
        }
    }

    /// Opens each file, with this advice.
    pub fn open(&self) -> Result<Vec<File>, Problem> {
        let files = self.files.open()?;
        for (number, file) in files.iter().enumerate() {
            self.advise(number, file)?;
        }
        Ok(files)
    }

    /// How many blocks it reads at most, each once.
    pub fn reads(&self) -> u64 {
        match self.amount {
            Amount::Ops(ops) => ops.min(self.blocks()),
            Amount::Seconds(_) => self.blocks(),
        }
    }

    /// The places of a single lane, in their order, as far as each is read once.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let shape = (&self.files.blocks(self.block)[..], self.block);
        let mut offsets = Offsets::new(self.order, shape, self.seed, (0, 1));
        (0..self.reads()).map_while(move |_| offsets.place())
    }

    /// Runs `work` on each lane at once and measures from the moment when all have begun.
    ///
    /// `work` sets up, calls [`Lane::begin`], and reads until [`Lane::next`] says no.
    pub fn run(
        &self,
        work: impl Fn(&mut Lane<'_>) -> Result<(), Problem> + Sync,
    ) -> Result<Round, Problem> {
        let start = Start {
            ready: Barrier::new(self.threads + 1),
            go: Barrier::new(self.threads + 1),
        };
        let finished = Mutex::new(Vec::new());
        let (before, outcome) = std::thread::scope(|scope| {
            // A thread of its own also for a single lane: the kernel does less for the
            // descriptors of a process that has but one thread, and contenders with an engine
            // have more.
            let lanes: Vec<_> = (0..self.threads)
                .map(|number| {
                    let (start, finished, work) = (&start, &finished, &work);
                    scope.spawn(move || {
                        let mut lane = Lane::new(self, number, start);
                        let outcome = work(&mut lane);
                        if let Some(done) = lane.finish() {
                            finished
                                .lock()
                                .unwrap_or_else(|e| e.into_inner())
                                .push(done);
                        }
                        outcome
                    })
                })
                .collect();
            start.ready.wait();
            let before = Usage::of_self();
            start.go.wait();
            let mut outcome = Ok(());
            for lane in lanes {
                let of_lane = lane
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                outcome = outcome.and(of_lane);
            }
            (before, outcome)
        });
        let used = Usage::of_self() - before;
        outcome?;
        let finished = finished.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(self.sum_up(finished, used))
    }

    fn sum_up(&self, finished: Vec<Finished>, used: Usage) -> Round {
        let began = finished.iter().map(|lane| lane.began).min();
        let ended = finished.iter().map(|lane| lane.ended).max();
        let seconds = match (began, ended) {
            (Some(began), Some(ended)) => (ended - began).as_secs_f64(),
            _ => 0.0,
        };
        let ops = finished.iter().map(|lane| lane.ops).sum();
        let mut tape = Tape::new(self.timed);
        let mut classes = Vec::new();
        for lane in finished {
            // An error is not possible: both histograms have the same bounds.
            let _ = tape.latency.add(&lane.tape.latency);
            let _ = tape.stall.add(&lane.tape.stall);
            // A mix has one lane.
            classes.extend(lane.classes);
        }
        let figures = |tape| Class::of(tape, self.block, seconds);
        Round {
            lat_us: Percentiles::of(&tape.latency),
            stall_us: Percentiles::of(&tape.stall),
            cut_short: self.stop.asked(),
            classes: CLASSES
                .into_iter()
                .zip(classes.into_iter().map(figures))
                .collect(),
            ..Round::new(ops, self.block, seconds, used)
        }
    }
}

/// One thread of a turn: where to read next, and what was timed.
pub struct Lane<'a> {
    offsets: Offsets,
    stop: &'a Stop,
    /// Operations that may still begin.
    left: u64,
    /// For how long they may begin.
    time: Option<Duration>,
    until: Option<Instant>,
    /// After so many more it looks at the clock and for Ctrl-C.
    look_in: u64,
    look_every: u64,
    ops: u64,
    pub tape: Tape,
    /// Of each class of a mix; else there are none.
    classes: Vec<class::Tape>,
    gate: Gate<'a>,
    began: Option<Instant>,
}

impl<'a> Lane<'a> {
    fn new(turn: &'a Turn<'_>, number: usize, start: &'a Start) -> Lane<'a> {
        let blocks = turn.files.blocks(turn.block);
        let classes = match turn.order {
            Order::Mix(_) => CLASSES.iter().map(|_| class::Tape::default()).collect(),
            Order::Once | Order::Rising | Order::Any => Vec::new(),
        };
        let share = |ops: u64| {
            let more = (number as u64) < ops % turn.threads as u64;
            ops / turn.threads as u64 + u64::from(more)
        };
        let all = match turn.order {
            // A block that comes again is no longer cold.
            Order::Once | Order::Rising => share(turn.blocks()),
            // A mix says itself when it has no more.
            Order::Any | Order::Mix(_) => u64::MAX,
        };
        let (left, time) = match turn.amount {
            Amount::Ops(ops) => (share(ops).min(all), None),
            Amount::Seconds(seconds) => (all, Some(Duration::from_secs_f64(seconds))),
        };
        Lane {
            offsets: Offsets::new(
                turn.order,
                (&blocks, turn.block),
                turn.seed,
                (number, turn.threads),
            ),
            stop: turn.stop,
            left,
            time,
            until: None,
            look_in: 1,
            look_every: turn.timed,
            ops: 0,
            tape: Tape::new(turn.timed),
            classes,
            gate: Gate {
                start,
                passed: false,
            },
            began: None,
        }
    }

    /// Set up: waits for the others, then the time runs.
    pub fn begin(&mut self) {
        self.gate.pass();
        let now = Instant::now();
        self.began = Some(now);
        self.until = self.time.map(|time| now + time);
    }

    /// The next place to read; `None` at the end of the turn.
    #[inline]
    pub fn next(&mut self) -> Option<Place> {
        if self.left == 0 {
            return None;
        }
        self.look_in -= 1;
        if self.look_in == 0 {
            self.look_in = self.look_every;
            if self.stop.asked() || self.until.is_some_and(|until| Instant::now() >= until) {
                self.left = 0;
                return None;
            }
        }
        self.left -= 1;
        let place = self.offsets.place();
        if place.is_none() {
            self.left = 0;
        }
        place
    }

    /// Notes a read that was timed. `hit` is true if the page cache had the block, and `None` if the
    /// contender does not know.
    #[inline]
    pub fn landed(&mut self, place: Place, time: Duration, hit: Option<bool>) {
        self.tape.latency(time);
        if let Some(class) = self.classes.get_mut(place.file) {
            class.note(time, hit, place.booked);
            self.offsets.landed(place);
        }
    }

    /// Counts an operation that is done.
    ///
    /// # Errors
    /// The read is short.
    #[inline]
    pub fn done(&mut self, read: usize, block: u64) -> Result<(), Problem> {
        if read as u64 != block {
            return Err(Problem::Failed(format!(
                "a read of {block} bytes returned {read}: another program has truncated the file; name one that \
                 no other program changes"
            )));
        }
        self.ops += 1;
        Ok(())
    }

    /// Counts operations that are done, each of them whole.
    pub fn done_many(&mut self, ops: u64) {
        self.ops += ops;
    }

    fn finish(self) -> Option<Finished> {
        Some(Finished {
            began: self.began?,
            ended: Instant::now(),
            ops: self.ops,
            tape: self.tape,
            classes: self.classes,
        })
    }
}

/// The times of a turn.
pub struct Tape {
    latency: Histogram<u64>,
    stall: Histogram<u64>,
    every: u64,
    next: u64,
}

impl Tape {
    fn new(every: u64) -> Tape {
        Tape {
            latency: histogram(),
            stall: histogram(),
            every,
            next: every,
        }
    }

    /// Starts a timer if one of the next `ops` operations is to be timed.
    #[inline]
    pub fn timer(&mut self, ops: u64) -> Option<Instant> {
        if self.next > ops {
            self.next -= ops;
            return None;
        }
        self.next += self.every.max(ops) - ops;
        self.next = self.next.max(1);
        Some(Instant::now())
    }

    /// True if every operation is timed.
    pub fn every_one(&self) -> bool {
        self.every == 1
    }

    /// From submission to completion.
    pub fn latency(&mut self, time: Duration) {
        self.latency.saturating_record(nanoseconds(time));
    }

    /// How long a call kept its caller.
    pub fn stall(&mut self, time: Duration) {
        self.stall.saturating_record(nanoseconds(time));
    }

    /// Ends a timer on a call that is both: it kept its caller until all was done.
    #[inline]
    pub fn call(&mut self, timer: Option<Instant>) {
        if let Some(timer) = timer {
            let time = timer.elapsed();
            self.latency(time);
            self.stall(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_timed() {
        let timed = |every, ops| {
            let mut tape = Tape::new(every);
            (0..6400 / ops)
                .filter(|_| tape.timer(ops).is_some())
                .count()
        };
        assert_eq!(timed(1, 1), 6400);
        assert_eq!(timed(64, 1), 100);
        assert_eq!(timed(64, 32), 100);
        assert_eq!(timed(64, 128), 50);
        assert_eq!(timed(1, 32), 200);
    }
}
