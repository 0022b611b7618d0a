//! Contenders that are futures on a shared engine: many at once, as a server has them, or one
//! after the other. They run without a runtime, because the engine wakes them.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use nowait::engine::{Backend, Engine, Options};
use nowait::read::NowaitPolicy;
use nowait::{File, Mode, OpenOptions, Provenance};

use crate::harness::contender::Fit;
use crate::harness::round::Round;
use crate::harness::turn::{Lane, Turn};
use nowait_cli::problem::Problem;

/// The options of a contender's engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    pub backend: Option<Backend>,
    pub mode: Mode,
    pub trying: NowaitPolicy,
    /// True if the calling thread asks for residency and reads cached blocks itself. The engine
    /// reads the others.
    pub caller_asks: bool,
}

impl Asked {
    /// As a user gets it, with room for so many.
    fn options(self, depth: usize) -> Options {
        let options = Options::new()
            .depth(depth.max(256))
            .mode(self.mode)
            .nowait_policy(self.trying);
        match self.backend {
            Some(backend) => options.backend(backend),
            None => options,
        }
    }

    /// Makes an engine of this kind.
    pub fn engine(self, depth: usize) -> Result<Engine, Problem> {
        Ok(self.options(depth).build()?)
    }

    /// Returns if an engine of this kind is available.
    pub fn fits(self, name: &str) -> Fit {
        match self.options(1).build() {
            Err(error) => Fit::no_engine(name, &error),
            Ok(engine) => Fit::on(name, self.backend, engine.backend(), engine.why()),
        }
    }
}

/// The files of a turn, on an engine.
pub fn open(turn: &Turn<'_>, engine: &Engine) -> Result<Vec<File>, Problem> {
    let mut options = OpenOptions::new();
    options.read(true).engine(engine);
    turn.files
        .paths
        .iter()
        .enumerate()
        .map(|(number, path)| {
            let file = options.blocking_open(path)?;
            turn.advise(number, &file)?;
            Ok(file)
        })
        .collect()
}

/// As many tasks as the depth, each of which reads block after block; one thread polls them all
/// (each thread its own).
pub fn many(turn: &Turn<'_>, asked: Asked) -> Result<Round, Problem> {
    let engine = asked.engine(turn.depth * turn.threads)?;
    let files = open(turn, &engine)?;
    let known = Known::default();
    let mut round = turn.run(|lane| {
        let buffers: Vec<_> = (0..turn.depth)
            .map(|_| vec![1u8; turn.block as usize])
            .collect();
        lane.begin();
        let lane = RefCell::new(lane);
        pollster::block_on(async {
            let mut tasks: FuturesUnordered<_> = buffers
                .into_iter()
                .map(|buffer| task(&lane, &files, buffer, turn.block, asked, &known))
                .collect();
            while let Some(ended) = tasks.next().await {
                ended?;
            }
            Ok(())
        })
    })?;
    round.hits_percent = known.hits_percent(round.ops);
    round.engine = Some((&engine).into());
    Ok(round)
}

/// The hits and misses that completions report.
#[derive(Default)]
struct Known {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Known {
    fn note(&self, provenance: Provenance, block: u64) {
        if provenance.cached as u64 == block {
            self.hits.fetch_add(1, Relaxed);
        } else if provenance.unknown as u64 != block {
            self.misses.fetch_add(1, Relaxed);
        }
    }

    /// Percent of so many reads; `None` if nothing was known of any.
    fn hits_percent(&self, ops: u64) -> Option<f64> {
        let (hits, misses) = (self.hits.load(Relaxed), self.misses.load(Relaxed));
        (hits + misses > 0).then(|| 100.0 * hits as f64 / ops as f64)
    }
}

/// One read in a contender's way.
async fn read(
    file: &File,
    mut buffer: Vec<u8>,
    offset: u64,
    caller_asks: bool,
) -> (nowait::Result<usize>, Vec<u8>, Provenance) {
    let len = buffer.len();
    let is_cached = || {
        file.residency()
            .is_resident(offset, len as u64)
            .ok()?
            .known()
    };
    if caller_asks && is_cached() == Some(true) {
        let mut provenance = Provenance::default();
        provenance.cached = len;
        let result = file.blocking_read_at(&mut buffer[..], offset);
        return (result, buffer, provenance);
    }
    let done = file.read_at(buffer, offset).await;
    (done.result, done.buf, done.provenance)
}

/// One task: reads until the lane says no.
async fn task(
    lane: &RefCell<&mut Lane<'_>>,
    files: &[File],
    mut buffer: Vec<u8>,
    block: u64,
    asked: Asked,
    known: &Known,
) -> Result<(), Problem> {
    loop {
        let next = {
            let mut lane = lane.borrow_mut();
            lane.next().map(|place| (place, lane.tape.timer(1)))
        };
        let Some((place, timer)) = next else {
            return Ok(());
        };
        let file = &files[place.file];
        let mut watched = Watched {
            future: pin!(read(file, buffer, place.offset, asked.caller_asks)),
            timed: timer.is_some(),
            longest: Duration::ZERO,
            polls: 0,
        };
        let (result, buf, provenance) = (&mut watched).await;
        let (longest, polls) = (watched.longest, watched.polls);
        buffer = buf;
        known.note(provenance, block);
        {
            let mut lane = lane.borrow_mut();
            let read = result?;
            if let Some(timer) = timer {
                let hit = provenance.cached == read;
                lane.landed(place, timer.elapsed(), Some(hit));
                lane.tape.stall(longest);
            }
            lane.done(read, block)?;
        }
        if polls == 1 {
            // A task whose reads are all hits would keep the other tasks from their completions.
            give_way().await;
        }
    }
}

/// A future, how often it was polled and how long the longest poll took, if that is of interest.
struct Watched<F> {
    future: F,
    timed: bool,
    longest: Duration,
    polls: u32,
}

impl<F: Future + Unpin> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls += 1;
        let start = self.timed.then(Instant::now);
        let polled = Pin::new(&mut self.future).poll(cx);
        if let Some(start) = start {
            self.longest = start.elapsed().max(self.longest);
        }
        polled
    }
}

/// Lets the other tasks have their turn.
async fn give_way() {
    let mut given = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut given, true) {
            Poll::Ready(())
        } else {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// One future after the other. Polls each future once, which is enough for a hit, and waits for it if
/// it is not ready.
pub fn single(turn: &Turn<'_>) -> Result<Round, Problem> {
    let engine = Asked::default().engine(turn.depth)?;
    let files = open(turn, &engine)?;
    let mut round = turn.run(|lane| {
        let mut buffer = vec![1u8; turn.block as usize];
        let mut cx = Context::from_waker(Waker::noop());
        lane.begin();
        while let Some(place) = lane.next() {
            let timer = lane.tape.timer(1);
            let mut read = files[place.file].read_at(buffer, place.offset);
            let polled = Pin::new(&mut read).poll(&mut cx);
            if let Some(timer) = timer {
                lane.tape.stall(timer.elapsed());
            }
            let done = match polled {
                Poll::Ready(done) => done,
                Poll::Pending => pollster::block_on(read),
            };
            if let Some(timer) = timer {
                lane.tape.latency(timer.elapsed());
            }
            buffer = done.buf;
            lane.done(done.result?, turn.block)?;
        }
        Ok(())
    })?;
    round.engine = Some((&engine).into());
    Ok(round)
}
