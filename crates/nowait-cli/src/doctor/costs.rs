//! What each call costs here: the table of the fincore() thread of 2015, and the ways of today.
//!
//! A sample is the mean of a few calls in a row, so that reading the clock weighs little; misses
//! and handoffs, which take long and vary, are timed one by one. Hits are hits of one page. Misses
//! are of pages that were evicted, each read once, without readahead beyond what is asked.

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

use super::report::{BreakEven, CostTable};
use super::subject::Subject;
use super::trial::{Trials, evict};
use super::verdict::Engines;

/// Samples of each.
const SAMPLES: usize = 300;
/// Calls in a sample of a quick call.
const QUICK: u32 = 16;
/// The most time that one row may take.
const PATIENCE: Duration = Duration::from_millis(100);
/// The read that most rows are about, in bytes.
const LEN: usize = 4096;
/// Operations in a batch.
const BATCH: usize = 32;

/// Samples in nanoseconds, or why there are none.
type Samples = Result<Vec<f64>, &'static str>;

/// The table, and what follows from it.
pub fn measure(subject: &Subject, trials: &Trials, engines: &Engines) -> (CostTable, BreakEven) {
    let mut table = CostTable::default();
    let null = quick(|_| rustix::process::getppid().is_some());
    table.row("null_call", "null call (getppid)", Some(528), null);
    misses(&mut table, subject, trials);
    let warm = warmed(subject);
    hits(&mut table, warm, trials);
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

/// Where trying begins to pay, with handoffs by this backend.
fn break_even(table: &CostTable, backend: Option<Backend>) -> BreakEven {
    let nowait = (table.median("nowait_4k_hit")).zip(table.median("nowait_4k_miss"));
    let ask_miss = (table.median("cachestat_miss")).or(table.median("mincore_miss"));
    let ask = (table.median("ask_pread_4k_hit")).zip(ask_miss);
    let handoff = match backend {
        Some(Backend::Uring) => table.median("handoff_owner_read_4k"),
        Some(Backend::Threads) => table.median("handoff_worker_read_4k"),
        None => None,
    };
    // Where NOWAIT is refused, asking is the try.
    let trying = nowait
        .or(ask)
        .zip(handoff)
        .map(|((hit, miss), handoff)| Costs { hit, miss, handoff });
    // What asking first adds to a hit, against what it saves of a miss.
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

const NO_FILE: &str = "there is no file to try";

/// What it costs to find nothing.
fn misses(table: &mut CostTable, subject: &Subject, trials: &Trials) {
    let cold = |what: &str, why| match subject.file() {
        None => Err(NO_FILE),
        Some((_, false)) => Err("the file is not ours to evict"),
        Some(_) if !trials.works("eviction") => Err("nothing can be evicted here"),
        Some(_) if !trials.works(what) => Err(why),
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

const NO_CACHESTAT: &str = "cachestat tells nothing here";
const NO_MINCORE: &str = "mincore tells nothing here";
const NO_NOWAIT: &str = "NOWAIT reads are refused here";

/// The file with the page in the cache that everybody reads.
fn warmed(subject: &Subject) -> Result<&File, &'static str> {
    let (file, _) = subject.file().ok_or(NO_FILE)?;
    match rustix::io::pread(file, &mut [0; LEN], 0) {
        Ok(LEN) => Ok(file),
        _ => Err("the file is shorter than 4 KiB or can't be read"),
    }
}

/// What it costs to find everything.
fn hits(table: &mut CostTable, file: Result<&File, &'static str>, trials: &Trials) {
    let with = |what: &str, why| match file {
        Ok(_) if !trials.works(what) => Err(why),
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
        (Err(_), Err(_)) => file.and(Err("neither cachestat nor mincore tells anything here")),
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

/// What it costs to have somebody else do it, and to be told.
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
            Ok(_) => Err("NOWAIT_BACKEND insists on the other backend"),
            Err(_) => Err("such an engine can't be had here"),
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

/// What it costs to use a ring oneself.
fn ring(table: &mut CostTable, handle: &Result<Handle, &'static str>) {
    let engine = match LocalEngine::new() {
        Ok(engine) if engine.backend() == Backend::Uring => Ok(RefCell::new(engine)),
        Ok(_) | Err(_) => Err("there is no ring here"),
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

/// What an engine is given to do: nothing, or a cached read. Buffers are used again.
///
/// The read is a `Readv`: a `Read` might be served before it gets to where it is to be measured.
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

    /// Whether all went well.
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

/// Asking this source, ready to be asked, whether the page is there: as strict reads ask. Only a yes
/// of cachestat's is a lone system call, the rest look at the file's size as well.
fn asking(source: Source, file: &File, want: bool) -> Samples {
    asking_and(source, file, want, |_| true)
}

/// The same, and then something else.
fn asking_and(
    source: Source,
    file: &File,
    want: bool,
    then: impl Fn(&mut [u8; LEN]) -> bool,
) -> Samples {
    let probe = Probe::only(source, file).map_err(|_| "the file can't be asked about")?;
    quick(|buf| {
        let answer = probe.is_resident(0, LEN as u64);
        matches!(answer, Ok(Answer::Known { value, .. }) if value == want) && then(buf)
    })
}

/// NOWAIT reads of pages that are not there, each of another page, and each with an idle device:
/// what the last one started has come in.
fn nowait_misses(file: &File) -> Samples {
    let page = rustix::param::page_size() as u64;
    let pages = file.metadata().map_or(0, |meta| meta.len()) / page;
    let begun = Instant::now();
    let mut samples = Vec::new();
    let mut buf = [0; LEN];
    // An odd stride meets each page of a power of two once, never the next one.
    for i in 0..pages {
        let offset = (i * 77 % pages) * page;
        let start = Instant::now();
        let got = read::with_flags(file, &mut buf, offset, RwFlags::NOWAIT);
        let ns = ns(start);
        // Only those that found nothing: a fast device brings some in time.
        if got.is_err_and(|e| e.errno() == Some(Errno::AGAIN.raw_os_error())) {
            samples.push(ns);
        }
        let _ = rustix::io::pread(file, &mut buf, offset);
        if begun.elapsed() > 5 * PATIENCE || samples.len() == SAMPLES {
            break;
        }
    }
    enough(samples)
}

/// Samples of a call that takes less than some microseconds: each the mean of several. The call
/// may use the memory it is given.
fn quick(call: impl Fn(&mut [u8; LEN]) -> bool) -> Samples {
    let mut buf = [0; LEN];
    let samples = single(|| (0..QUICK).all(|_| call(&mut buf)))?;
    Ok(samples.iter().map(|ns| ns / f64::from(QUICK)).collect())
}

/// Samples of something that is timed as a whole.
fn single(mut act: impl FnMut() -> bool) -> Samples {
    let begun = Instant::now();
    let mut samples = Vec::with_capacity(SAMPLES);
    let warmup = SAMPLES / 10;
    for i in 0..SAMPLES + warmup {
        let start = Instant::now();
        let went_well = act();
        let ns = ns(start);
        if !went_well {
            return Err("it did not work when it was measured");
        }
        if i >= warmup {
            samples.push(ns);
        }
        if begun.elapsed() > PATIENCE {
            break;
        }
    }
    enough(samples)
}

/// A median of a handful says nothing.
fn enough(samples: Vec<f64>) -> Samples {
    if samples.len() < 20 {
        Err("too slow, or too few were what was to be measured")
    } else {
        Ok(samples)
    }
}

fn ns(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}
