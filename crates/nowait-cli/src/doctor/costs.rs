//! Measures the cost of each call: the calls of the fincore() thread of 2015, and today's calls.
//!
//! A sample is the mean of several successive calls, so that reading the clock has little weight.
//! Misses and handoffs take longer and vary more; they are timed one by one. A hit reads one cached
//! page. A miss reads an evicted page, each page once and without readahead.

use std::cell::RefCell;
use std::fs::File;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use nowait::cost::Costs;
use nowait::engine::{Backend, Engine, LocalEngine, Options, Submit, Wait};
use nowait::op::{Kind, Nop, Op, Readv};
use nowait::residency::{Answer, Probe, Source};
use nowait::{Handle, RwFlags, read};
use rustix::io::Errno;

use super::checks::{Checks, evict};
use super::decisions::Engines;
use super::report::{BreakEven, CostTable};
use super::test_file::TestFile;

/// The number of samples of each row.
const SAMPLES: usize = 300;
/// The number of calls in one sample of a quick call.
const QUICK: u32 = 16;
/// The maximum time for one row.
const MAX_TIME: Duration = Duration::from_millis(100);
/// The length in bytes of the read in most rows.
const LEN: usize = 4096;
/// The number of operations in a batch.
const BATCH: usize = 32;

/// Samples in nanoseconds, or the reason why there are none.
type Samples = Result<Vec<f64>, &'static str>;

/// Measures the table, and computes the break-even hit rates.
pub fn measure(test_file: &TestFile, checks: &Checks, engines: &Engines) -> (CostTable, BreakEven) {
    let mut table = CostTable::default();
    let null = quick(|_| rustix::process::getppid().is_some());
    table.row("null_call", "null call (getppid)", Some(528), null);
    misses(&mut table, test_file, checks);
    let warm = warmed(test_file);
    hits(&mut table, warm, checks);
    let handle = warm.and_then(|file| {
        let handle = file
            .try_clone()
            .ok()
            .and_then(|file| Handle::new(file).ok());
        handle.ok_or(NO_FILE)
    });
    handoffs(&mut table, &handle);
    ring(&mut table, &handle);
    let backend = engines.eager.as_ref().ok().map(Engine::backend);
    let break_even = break_even(&table, backend);
    (table, break_even)
}

/// The hit rates at which a NOWAIT try begins to pay, with the handoff cost of this backend.
fn break_even(table: &CostTable, backend: Option<Backend>) -> BreakEven {
    let nowait = (table.median("nowait_4k_hit")).zip(table.median("nowait_4k_miss"));
    let ask_miss = (table.median("cachestat_miss")).or(table.median("mincore_miss"));
    let ask = (table.median("ask_pread_4k_hit")).zip(ask_miss);
    let handoff = match backend {
        Some(Backend::Uring) => table.median("handoff_owner_read_4k"),
        Some(Backend::Threads) => table.median("handoff_worker_read_4k"),
        None => None,
    };
    // If NOWAIT reads are refused, the residency query replaces the try.
    let trying = nowait
        .or(ask)
        .zip(handoff)
        .map(|((hit, miss), handoff)| Costs { hit, miss, handoff });
    // Compares what a query before the read adds to a hit with what it saves on a miss.
    let asking = nowait
        .zip(ask)
        .map(|((hit, miss), (ask_hit, ask_miss))| Costs {
            hit,
            miss: (miss - ask_miss).max(0.0),
            handoff: ask_hit,
        });
    BreakEven {
        trying: trying.map(Costs::break_even),
        asking: asking.map(Costs::break_even),
    }
}

const NO_FILE: &str = "there is no file for checks";

/// Measures the rows of misses.
fn misses(table: &mut CostTable, test_file: &TestFile, checks: &Checks) {
    let cold = |what: &str, why| match test_file.file() {
        None => Err(NO_FILE),
        Some((_, false)) => Err("a user's file is not evicted"),
        Some(_) if !checks.works("eviction") => Err("pages cannot be evicted here"),
        Some(_) if !checks.works(what) => Err(why),
        Some((file, true)) => Ok(file),
    };
    if let Ok(file) = cold("eviction", "") {
        evict(file);
    }
    table.row(
        "cachestat_miss",
        "cachestat, miss",
        Some(674),
        cold("cachestat", NO_CACHESTAT).and_then(|file| asking(Source::Cachestat, file, false)),
    );
    table.row(
        "mincore_miss",
        "mincore, miss",
        None,
        cold("mincore", NO_MINCORE).and_then(|file| asking(Source::Mincore, file, false)),
    );
    table.row(
        "nowait_4k_miss",
        "preadv2 NOWAIT 4 KiB, miss",
        None,
        cold("nowait_read", NO_NOWAIT).and_then(nowait_misses),
    );
}

const NO_CACHESTAT: &str = "cachestat is not usable here";
const NO_MINCORE: &str = "mincore is not usable here";
const NO_NOWAIT: &str = "NOWAIT reads are refused here";

/// Returns the file, after reading its first page into the page cache.
fn warmed(test_file: &TestFile) -> Result<&File, &'static str> {
    let (file, _) = test_file.file().ok_or(NO_FILE)?;
    match rustix::io::pread(file, &mut [0; LEN], 0) {
        Ok(LEN) => Ok(file),
        _ => Err("the file is shorter than 4 KiB or cannot be read"),
    }
}

/// Measures the rows of hits.
fn hits(table: &mut CostTable, file: Result<&File, &'static str>, checks: &Checks) {
    let with = |what: &str, why| match file {
        Ok(_) if !checks.works(what) => Err(why),
        other => other,
    };
    let stat = with("cachestat", NO_CACHESTAT);
    let core = with("mincore", NO_MINCORE);
    table.row(
        "cachestat_hit",
        "cachestat, hit",
        Some(729),
        stat.and_then(|file| asking(Source::Cachestat, file, true)),
    );
    table.row(
        "mincore_hit",
        "mincore, hit",
        None,
        core.and_then(|file| asking(Source::Mincore, file, true)),
    );
    let pread = |len| file.and_then(|file| quick(|buf| pread(file, &mut buf[..len])));
    table.row("pread_1b_hit", "pread 1 byte", Some(1026), pread(1));
    let preadv = |len| file.and_then(|file| quick(|buf| preadv(file, &mut buf[..len])));
    table.row("preadv_1b_hit", "preadv 1 byte", Some(1134), preadv(1));
    table.row("pread_4k_hit", "pread 4 KiB", None, pread(LEN));
    table.row("preadv_4k_hit", "preadv 4 KiB", None, preadv(LEN));
    let nowait = with("nowait_read", NO_NOWAIT).and_then(|file| {
        quick(|buf| matches!(read::with_flags(file, buf, 0, RwFlags::NOWAIT), Ok(LEN)))
    });
    table.row("nowait_4k_hit", "preadv2 NOWAIT 4 KiB, hit", None, nowait);
    let asked = match (stat, core) {
        (Ok(file), _) => asking_and(Source::Cachestat, file, true, |buf| self::pread(file, buf)),
        (_, Ok(file)) => asking_and(Source::Mincore, file, true, |buf| self::pread(file, buf)),
        (Err(_), Err(_)) => file.and(Err("neither cachestat nor mincore is usable here")),
    };
    let label = "fincore + pread 4 KiB, hit";
    table.row("ask_pread_4k_hit", label, Some(1755), asked);
}

fn pread(file: &File, buf: &mut [u8]) -> bool {
    let len = buf.len();
    rustix::io::pread(file, buf, 0) == Ok(len)
}

fn preadv(file: &File, buf: &mut [u8]) -> bool {
    let len = buf.len();
    rustix::io::preadv(file, &mut [IoSliceMut::new(buf)], 0) == Ok(len)
}

/// Measures the handoff to a worker or an owner, including the wait for the completion.
fn handoffs(table: &mut CostTable, handle: &Result<Handle, &'static str>) {
    let rows = [
        (
            Backend::Threads,
            ["handoff_worker_nop", "handoff_worker_read_4k"],
            ["handoff to a worker, nop", "handoff to a worker, 4 KiB hit"],
        ),
        (
            Backend::Uring,
            ["handoff_owner_nop", "handoff_owner_read_4k"],
            [
                "handoff to the ring's owner, nop",
                "handoff to the owner, 4 KiB hit",
            ],
        ),
    ];
    for (backend, keys, labels) in rows {
        let engine = Options::new().backend(backend).build();
        let engine = match &engine {
            Ok(engine) if engine.backend() == backend => Ok(engine),
            Ok(_) => Err("NOWAIT_BACKEND selects the other backend"),
            Err(_) => Err("this backend is not available here"),
        };
        let through = |load: &Load<'_>| {
            let engine = engine?;
            single(|| {
                let Submit::Queued(_) = engine.submit(load.op()) else {
                    return false;
                };
                let mut done = Vec::with_capacity(1);
                let reaped = engine.reap(&mut done, Wait::For(1));
                reaped.is_ok() && load.took(done)
            })
        };
        table.row(keys[0], labels[0], None, through(&Load::nop()));
        let load = handle.as_ref().map_err(|why| *why).map(Load::read);
        table.row(keys[1], labels[1], None, load.and_then(|l| through(&l)));
    }
}

/// Measures a local engine, which is driven by this thread.
fn ring(table: &mut CostTable, handle: &Result<Handle, &'static str>) {
    let engine = match LocalEngine::new() {
        Ok(engine) if engine.backend() == Backend::Uring => Ok(RefCell::new(engine)),
        Ok(_) | Err(_) => Err("io_uring is not available here"),
    };
    let through = |load: &Load<'_>, batch: usize| {
        let mut engine = engine.as_ref().map_err(|why| *why)?.borrow_mut();
        let mut ops = Vec::with_capacity(batch);
        let mut done = Vec::with_capacity(batch);
        let times = single(|| {
            ops.extend((0..batch).map(|_| load.op()));
            let taken = engine.submit_batch(&mut ops);
            let reaped = engine.reap(&mut done, Wait::For(taken));
            reaped.is_ok() && taken == batch && load.took(done.drain(..))
        })?;
        Ok(times.into_iter().map(|ns| ns / batch as f64).collect())
    };
    let read = handle.as_ref().map_err(|why| *why).map(Load::read);
    let nop = Load::nop();
    table.row("ring_nop", "own ring, nop", None, through(&nop, 1));
    table.row(
        "ring_read_4k",
        "own ring, 4 KiB hit",
        None,
        read.as_ref()
            .map_err(|why| *why)
            .and_then(|l| through(l, 1)),
    );
    let label = "own ring, nop in a batch of 32";
    table.row("ring_nop_batch_32", label, None, through(&nop, BATCH));
    table.row(
        "ring_read_4k_batch_32",
        "own ring, 4 KiB hit in a batch of 32",
        None,
        read.and_then(|l| through(&l, BATCH)),
    );
}

/// The operation to measure: a no-op or a cached read. Buffers are reused.
///
/// The read is a `Readv`, because a `Read` may be completed in the calling thread before the
/// handoff.
struct Load<'a> {
    handle: Option<&'a Handle>,
    spare: RefCell<Vec<Vec<nowait::buffer::Buffer>>>,
}

impl<'a> Load<'a> {
    fn nop() -> Load<'a> {
        Load {
            handle: None,
            spare: RefCell::default(),
        }
    }

    fn read(handle: &'a Handle) -> Load<'a> {
        Load {
            handle: Some(handle),
            ..Load::nop()
        }
    }

    fn op(&self) -> Op {
        let Some(handle) = self.handle else {
            return Nop.into();
        };
        let buffers = self.spare.borrow_mut().pop();
        let buffers = buffers.unwrap_or_else(|| vec![Box::new(vec![0; LEN])]);
        Readv::new(handle, buffers, 0).into()
    }

    /// Takes the buffers back. Returns true if all operations succeeded.
    fn took(&self, done: impl IntoIterator<Item = nowait::Completion>) -> bool {
        let want = if self.handle.is_some() { LEN } else { 0 };
        done.into_iter().all(|completion| {
            if let Kind::Readv(readv) = completion.op.into_kind() {
                self.spare.borrow_mut().push(readv.into_buffers());
            }
            matches!(completion.result, Ok(n) if n == want)
        })
    }
}

/// Measures the residency query of strict reads with this source. A positive answer of cachestat
/// takes one system call; other answers query the file's size, too.
fn asking(source: Source, file: &File, want: bool) -> Samples {
    asking_and(source, file, want, |_| true)
}

/// Measures the residency query followed by another call.
fn asking_and(
    source: Source,
    file: &File,
    want: bool,
    then: impl Fn(&mut [u8; LEN]) -> bool,
) -> Samples {
    let probe = Probe::only(source, file).map_err(|_| "the file cannot be queried")?;
    quick(|buf| {
        let answer = probe.is_resident(0, LEN as u64);
        matches!(answer, Ok(Answer::Known { value, .. }) if value == want) && then(buf)
    })
}

/// Measures NOWAIT reads of pages that are not cached. Each read is of another page and begins with
/// an idle device, because the readahead of the previous try has completed.
fn nowait_misses(file: &File) -> Samples {
    let page = rustix::param::page_size() as u64;
    let pages = file.metadata().map_or(0, |meta| meta.len()) / page;
    let begun = Instant::now();
    let mut samples = Vec::new();
    let mut buf = [0; LEN];
    // The number of pages is a power of two. An odd stride visits each page once and no successive
    // pages.
    for i in 0..pages {
        let offset = (i * 77 % pages) * page;
        let start = Instant::now();
        let got = read::with_flags(file, &mut buf, offset, RwFlags::NOWAIT);
        let ns = ns(start);
        // Only misses are counted. A fast device may have delivered the page in time.
        if got.is_err_and(|e| e.errno() == Some(Errno::AGAIN.raw_os_error())) {
            samples.push(ns);
        }
        let _ = rustix::io::pread(file, &mut buf, offset);
        if begun.elapsed() > 5 * MAX_TIME || samples.len() == SAMPLES {
            break;
        }
    }
    enough(samples)
}

/// Samples of a call that takes at most some microseconds. A sample is the mean of [`QUICK`] calls.
/// The call is given a buffer.
fn quick(call: impl Fn(&mut [u8; LEN]) -> bool) -> Samples {
    let mut buf = [0; LEN];
    let samples = single(|| (0..QUICK).all(|_| call(&mut buf)))?;
    Ok(samples.iter().map(|ns| ns / f64::from(QUICK)).collect())
}

/// Samples of an action that is timed as a whole.
fn single(mut act: impl FnMut() -> bool) -> Samples {
    let begun = Instant::now();
    let mut samples = Vec::with_capacity(SAMPLES);
    let warmup = SAMPLES / 10;
    for i in 0..SAMPLES + warmup {
        let start = Instant::now();
        let went_well = act();
        let ns = ns(start);
        if !went_well {
            return Err("a call failed during the measurement");
        }
        if i >= warmup {
            samples.push(ns);
        }
        if begun.elapsed() > MAX_TIME {
            break;
        }
    }
    enough(samples)
}

/// Returns the samples if there are enough for a median.
fn enough(samples: Vec<f64>) -> Samples {
    if samples.len() < 20 {
        Err("too slow, or too few calls had the result to be measured")
    } else {
        Ok(samples)
    }
}

fn ns(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}
