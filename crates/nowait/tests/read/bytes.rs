//! Reads and writes transfer the right bytes: a read returns what pread(2) returns, a write leaves what
//! pwrite(2) leaves. This holds for every filesystem, backend, mode, method and state of the page cache.
//!
//! All cases share one mount for each filesystem. `PROPTEST_CASES` sets the number of cases for each
//! property and backend.
#![allow(
    unsafe_code,
    reason = "a buffer for O_DIRECT; uninitialised memory to read into"
)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use nowait::buffer::{Buffer, IoBufExt, IoBufMut, Limit, UninitSlice, downcast};
use nowait::engine::{Backend, Engine, LocalEngine, Options, Submit, Wait};
use nowait::op::{Fsync, Kind, Op, Read, Readv, Write, Writev};
use nowait::read::Cached;
use nowait::stats::Stats;
use nowait::{BufResult, Completion, ErrorKind, File, Mode, OpenOptions, Provenance, ServedBy};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use slowdisk::{Filesystem, SlowDisk, TestMount};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::mounts::{ON_DISK, mounted};
use crate::common::samples::{Sample, bytes};

#[test]
fn on_ext4() {
    every_property(Filesystem::Ext4);
}

#[test]
fn on_xfs() {
    every_property(Filesystem::Xfs);
}

#[test]
fn on_btrfs() {
    every_property(Filesystem::Btrfs);
}

#[test]
fn on_tmpfs() {
    every_property(Filesystem::Tmpfs);
}

#[test]
fn on_overlay() {
    every_property(Filesystem::Overlay);
}

/// The same on a slow device: operations run at the same time, and the page cache changes meanwhile.
#[test]
fn on_a_slow_disk() {
    slowdisk::require!(slowdisk::available());
    slowdisk::require!(Filesystem::Ext4.available());
    let disk = SlowDisk::builder()
        .size(512 * MIB)
        .latency(Duration::from_micros(300))
        .queue(16)
        .build()
        .expect("a slow disk");
    let mount = TestMount::on(&disk, Filesystem::Ext4).expect("a fresh ext4");
    properties(&mount, "a slow disk", 6);
}

fn every_property(filesystem: Filesystem) {
    let mount = mounted!(filesystem);
    for (backend, stats) in properties(&mount, filesystem.name(), 1) {
        if !ON_DISK.contains(&filesystem) {
            continue;
        }
        if std::env::var_os("PROPTEST_CASES").is_some() {
            // A small number may not reach every case.
            continue;
        }
        // A property proves nothing if its case never occurred.
        let met = [
            ("hits", stats.hits),
            ("prefixes", stats.prefixes),
            ("misses", stats.misses),
            ("handoffs", stats.handoffs),
            ("reads by workers", stats.workers),
        ];
        for (what, count) in met {
            assert!(count > 0, "{filesystem} on {backend}: no {what}");
        }
        assert!(backend == Backend::Threads || stats.ring > 0);
    }
}

/// Checks each property on each backend, with the usual number of cases divided by `fewer`. Returns the
/// statistics of the engines.
fn properties(mount: &TestMount, on: &str, fewer: u32) -> Vec<(Backend, Stats)> {
    let samples = samples(mount.path());
    let mut done = Vec::new();
    for backend in backends() {
        let bench = Bench::new(mount.path(), &samples, backend);
        let name = format!("{on} with {backend}");
        check(
            &format!("{name}: reads"),
            READS / fewer,
            &a_case(),
            |case| {
                bench.read(case);
            },
        );
        let direct = a_direct_case();
        check(&format!("{name}: O_DIRECT"), 80 / fewer, &direct, |case| {
            bench.read(case);
        });
        let appends = format!("{name}: appends");
        check(&appends, 4_u32.div_ceil(fewer), &any::<u32>(), |seed| {
            for mode in [Mode::Eager, Mode::Strict] {
                bench.read_while_appended((*seed).into(), mode);
            }
        });
        check(&format!("{name}: writes"), 60 / fewer, &a_writing(), |w| {
            bench.write(w);
        });
        done.push((bench.backend, bench.engine.stats()));
    }
    samples.iter().for_each(Sample::check);
    done
}

/// Files of procfs return at most a page for each call, and their size is 0: a read must continue until
/// it has everything.
#[test]
fn where_kernel_reads_are_short() {
    const PART: usize = 120_000;
    let names = ["/proc/kallsyms", "/proc/filesystems"];
    let mut samples = Vec::new();
    for name in names {
        let Ok(content) = fs::read(name) else {
            return slowdisk::skip_or_fail(format!("{name} is missing"));
        };
        let path = name.into();
        samples.push(Sample { path, content });
    }
    // A read at an offset takes as long as a read up to it: only the first part is read.
    samples[0].content.truncate(PART);
    let within = (0.0..0.5).prop_map(At::Within);
    let anywhere = prop_oneof![
        (0.0..1.0).prop_map(At::Within),
        (-100i64..100).prop_map(At::End)
    ];
    let of_many = (within, 0..PART / 2).prop_map(|read| (0, read));
    let of_few = (anywhere, 0..10_000usize).prop_map(|read| (1, read));
    let case = (prop_oneof![of_many, of_few], a_face(), any::<bool>());
    let case = case.prop_map(|((sample, (at, len)), face, strict)| Case {
        sample,
        strict,
        known: false,
        direct: false,
        cache: Cache::AsItIs,
        reads: vec![Request { at, len, face }],
    });
    for backend in backends() {
        let bench = Bench::new(Path::new("/proc"), &samples, backend);
        // The first read shows that cached reads are refused.
        let mut file = OpenOptions::new();
        file.engine(&bench.engine).read(true);
        let file = file.blocking_open(&samples[1].path).expect("open");
        let _ = pollster::block_on(file.read_at(vec![0; 10], 0));
        let name = format!("procfs with {backend}: reads");
        check(&name, 100, &case, |case| bench.read(case));
    }
}

/// The kernel takes the part of a write that fits.
#[test]
fn on_a_full_filesystem() {
    slowdisk::require!(Filesystem::Tmpfs.available());
    for backend in backends() {
        let small = TestMount::builder(Filesystem::Tmpfs).size(MIB);
        let mount = small.build().expect("a small tmpfs");
        let bench = Bench::new(mount.path(), &[], backend);
        let data = bytes(1, 0..2 * MIB);
        for writer in [
            Writer::At,
            Writer::Blocking,
            Writer::Pieces,
            Writer::LocalPieces,
        ] {
            let path = mount.path().join("file");
            let file = bench.create(&path);
            let n = bench.write_one(&file, writer, 100, &data);
            assert!(0 < n && n < data.len(), "{backend}: {writer:?}: {n}");
            let seen = fs::read(&path).expect("read");
            assert!(
                seen[..100] == [0; 100] && seen[100..] == data[..n],
                "{writer:?}"
            );
            // `write_all` continues until an error.
            let all = pollster::block_on(file.write_all_at(data.clone(), 100));
            assert_eq!(all.result.expect_err("full").errno(), Some(libc::ENOSPC));
            assert!(all.buf == data);
            let all = file.blocking_write_all_at(&data, 100);
            assert_eq!(all.expect_err("full").errno(), Some(libc::ENOSPC));
            assert!(fs::read(&path).expect("read")[100..] == data[..n]);
            // Truncates it, too: a ring may release a file shortly after the completion.
            fs::write(&path, b"").expect("truncate");
            fs::remove_file(&path).expect("unlink");
        }
    }
}

/// The number of cases of reads.
const READS: u32 = 300;

/// The number of cases of a property, in proportion to that of the reads, which `PROPTEST_CASES` sets.
fn check<S: Strategy>(name: &str, cases: u32, strategy: &S, property: impl Fn(&S::Value)) {
    let asked = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(READS);
    let config = Config {
        cases: (cases * asked).div_ceil(READS),
        failure_persistence: None,
        // A case has up to 32 reads of up to megabytes: the search for a smaller case is limited.
        max_shrink_iters: 200,
        ..Config::default()
    };
    let began = Instant::now();
    let result = TestRunner::new(config).run(strategy, |case| {
        property(&case);
        Ok(())
    });
    if let Err(why) = result {
        panic!("{name}: {why}");
    }
    println!("{name}: {:?}", began.elapsed());
}

// ---------------------------------------------------------------------------------------- cases

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Files of critical sizes, and one with holes.
fn samples(dir: &Path) -> Vec<Sample> {
    let mut samples: Vec<Sample> = [0, 1, 4095, 4096, 4097, 12_800, 3 * MIB + 123]
        .into_iter()
        .map(|size| Sample::new(dir, &format!("of-{size}"), size))
        .collect();
    let data = [
        64 * KIB..64 * KIB + 1,
        100_000..400_000,
        MIB + 4095..MIB + 12_289,
        3 * MIB..3 * MIB + 700_000,
    ];
    samples.push(Sample::sparse(dir, "holes", 5 * MIB - 77, &data));
    samples
}

/// Reads of one file, at the same time where that is possible.
#[derive(Clone, Debug)]
struct Case {
    sample: usize,
    strict: bool,
    /// Uses the handle, and the history, of the last case on this file.
    known: bool,
    direct: bool,
    cache: Cache,
    reads: Vec<Request>,
}

/// The state of the page cache before the reads.
#[derive(Clone, Debug)]
enum Cache {
    Cold,
    Warm,
    /// Some ranges: their relative positions in the file, and their lengths in pages.
    Half(Vec<(f64, u64)>),
    /// All pages, while another thread evicts the file again and again.
    Churning,
    /// The file can't be evicted.
    AsItIs,
}

#[derive(Clone, Debug)]
struct Request {
    at: At,
    len: usize,
    face: Face,
}

/// An offset, relative to the size of the file.
#[derive(Clone, Copy, Debug)]
enum At {
    /// A fraction of the size.
    Within(f64),
    /// A distance from the page boundary at a fraction of the size.
    Page(f64, i64),
    /// A distance before the end.
    End(i64),
    /// A distance beyond the end.
    Far(u64),
}

impl At {
    fn resolve(self, size: u64) -> u64 {
        let part = |f: f64| (size as f64 * f) as u64;
        match self {
            At::Within(f) => part(f),
            At::Page(f, by) => (part(f) & !4095).saturating_add_signed(by),
            At::End(by) => size.saturating_add_signed(by),
            At::Far(by) => size.saturating_add(by),
        }
    }
}

/// The ways to read.
#[derive(Clone, Debug)]
enum Face {
    FutureVec,
    FutureBox,
    #[cfg(feature = "bytes")]
    FutureBytes,
    FutureArray,
    FutureLimit,
    FutureExact,
    Blocking,
    BlockingUninit,
    BlockingExact,
    Cached,
    Submit,
    Batch,
    LocalSubmit,
    LocalBatch,
    /// A readv in pieces of these fractions of the length; how it is submitted.
    Pieces(Vec<u8>, Way),
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Submit,
    Batch,
    LocalSubmit,
    LocalBatch,
}

fn a_case() -> impl Strategy<Value = Case> {
    let cache = prop_oneof![
        2 => Just(Cache::Cold),
        2 => Just(Cache::Warm),
        4 => prop::collection::vec((0.0..1.0, 1u64..200), 1..6).prop_map(Cache::Half),
        2 => Just(Cache::Churning),
    ];
    let at = prop_oneof![
        4 => (0.0..1.0).prop_map(At::Within),
        3 => (0.0..1.0, -2i64..=2).prop_map(|(f, by)| At::Page(f, by)),
        3 => (-70_000i64..9_000).prop_map(At::End),
        1 => prop_oneof![0u64..100_000, Just(1 << 40)].prop_map(At::Far),
    ];
    let len = prop_oneof![
        1 => Just(0),
        4 => 1usize..10_000,
        1 => prop::sample::select(vec![4095usize, 4096, 4097, 8192]),
        3 => 1usize..300_000,
        1 => (256usize << 10) - 2..(256 << 10) + 3,
        1 => 256usize << 10..4 << 20,
    ];
    let read = (at, len, a_face())
        .prop_map(|(at, len, face)| Request { at, len, face })
        .boxed();
    let sample = prop_oneof![1 => 0..6usize, 2 => Just(6), 2 => Just(7)];
    let reads = prop_oneof![
        prop::collection::vec(read.clone(), 1..8),
        prop::collection::vec(read, 1..=32)
    ];
    (sample, any::<bool>(), any::<bool>(), cache, reads).prop_map(
        |(sample, strict, known, cache, reads)| Case {
            sample,
            strict,
            known,
            direct: false,
            cache,
            reads,
        },
    )
}

fn a_face() -> impl Strategy<Value = Face> {
    let pieces = prop::collection::vec(prop_oneof![1 => Just(0u8), 3 => any::<u8>()], 0..9);
    let plain = prop::sample::select(vec![
        Face::FutureVec,
        Face::FutureVec,
        Face::FutureBox,
        #[cfg(feature = "bytes")]
        Face::FutureBytes,
        Face::FutureArray,
        Face::FutureLimit,
        Face::FutureExact,
        Face::Blocking,
        Face::BlockingUninit,
        Face::BlockingExact,
        Face::Cached,
        Face::Submit,
        Face::Batch,
        Face::LocalSubmit,
        Face::LocalBatch,
    ]);
    prop_oneof![
        4 => plain,
        1 => (pieces, a_way()).prop_map(|(parts, way)| Face::Pieces(parts, way)),
    ]
}

fn a_way() -> impl Strategy<Value = Way> {
    prop::sample::select(vec![
        Way::Submit,
        Way::Batch,
        Way::LocalSubmit,
        Way::LocalBatch,
    ])
}

/// Requests for O_DIRECT: offset and length are multiples of 4 KiB.
fn a_direct_case() -> impl Strategy<Value = Case> {
    a_case().prop_map(|mut case| {
        case.direct = true;
        case.reads.truncate(12);
        for read in &mut case.reads {
            read.len = read.len.next_multiple_of(ALIGN).max(ALIGN);
            read.at = match read.at {
                At::Within(f) | At::Page(f, _) => At::Page(f, 0),
                // The page of the end, the ones around it.
                At::End(by) => At::Page(1.0, (by / 4096) * 4096),
                At::Far(by) => At::Page(1.0, (by as i64 + 1) * 4096),
            };
            read.face = match std::mem::replace(&mut read.face, Face::Blocking) {
                Face::Cached | Face::BlockingUninit | Face::BlockingExact => Face::Blocking,
                Face::Pieces(parts, way) => Face::Pieces(parts, way),
                face @ (Face::Submit | Face::Batch | Face::LocalSubmit | Face::LocalBatch) => face,
                Face::Blocking => Face::Blocking,
                _ => Face::FutureVec,
            };
        }
        case
    })
}

// ---------------------------------------------------------------------------------------- reads

/// A filesystem with its samples, and engines to read them with.
struct Bench<'a> {
    dir: &'a Path,
    samples: &'a [Sample],
    backend: Backend,
    engine: Engine,
    local: RefCell<LocalEngine>,
    known: RefCell<HashMap<(usize, bool, bool), File>>,
    names: AtomicU64,
}

/// The byte that memory is filled with before a read.
const FILL: u8 = 0xa5;

/// The result of one read.
struct Brought {
    result: nowait::Result<usize>,
    provenance: Option<Provenance>,
    /// The filled part of the buffer, and what is behind it.
    filled: Vec<u8>,
    behind: Vec<u8>,
    len: usize,
}

type Reading<'f> = Pin<Box<dyn Future<Output = (usize, Brought)> + 'f>>;

impl<'a> Bench<'a> {
    fn new(dir: &'a Path, samples: &'a [Sample], backend: Backend) -> Bench<'a> {
        let options = Options::new().backend(backend).depth(64).workers(8);
        let engine = options.build().expect("a shared engine");
        Bench {
            dir,
            samples,
            // NOWAIT_BACKEND may have chosen the backend.
            backend: engine.backend(),
            engine,
            local: RefCell::new(options.build_local().expect("a local engine")),
            known: RefCell::default(),
            names: AtomicU64::new(0),
        }
    }

    fn open(&self, case: &Case) -> Option<File> {
        let key = (case.sample, case.strict, case.direct);
        if case.known
            && let Some(file) = self.known.borrow().get(&key)
        {
            return Some(file.clone());
        }
        let mode = if case.strict {
            Mode::Strict
        } else {
            Mode::Eager
        };
        let opened = OpenOptions::new()
            .read(true)
            .direct(case.direct)
            .cache_mode(mode)
            .engine(&self.engine)
            .blocking_open(&self.samples[case.sample].path);
        match opened {
            Ok(file) => {
                self.known.borrow_mut().insert(key, file.clone());
                Some(file)
            }
            // Not every filesystem has O_DIRECT.
            Err(why) if case.direct && why.errno() == Some(libc::EINVAL) => None,
            Err(why) => panic!("{why}"),
        }
    }

    /// Prepares the page cache, starts all reads of a case, and compares their bytes.
    fn read(&self, case: &Case) {
        let sample = &self.samples[case.sample];
        let Some(file) = self.open(case) else { return };
        match &case.cache {
            Cache::Cold => sample.evict(),
            Cache::Warm | Cache::Churning => sample.warm(),
            Cache::AsItIs => {}
            Cache::Half(ranges) => {
                sample.evict();
                for (at, pages) in ranges {
                    let start = At::Page(*at, 0).resolve(sample.size());
                    sample.touch(start..start + pages * 4096);
                }
            }
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = SetOnDrop(&over);
            if matches!(case.cache, Cache::Churning) {
                scope.spawn(|| {
                    let fd = sample.open();
                    while !over.load(Ordering::Relaxed) {
                        let _ = rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::DontNeed);
                        std::thread::yield_now();
                    }
                });
            }
            self.read_all(case, &file, sample);
        });
    }

    fn read_all(&self, case: &Case, file: &File, sample: &Sample) {
        let mut local = self.local.borrow_mut();
        let (mut batch, mut local_batch) = (Vec::new(), Vec::new());
        let (mut shared_done, mut local_done) = (Vec::new(), Vec::new());
        let mut queued = 0;
        let mut futures: Vec<Reading<'_>> = Vec::new();
        let mut brought: Vec<Option<Brought>> = case.reads.iter().map(|_| None).collect();
        for (i, read) in case.reads.iter().enumerate() {
            let offset = read.at.resolve(sample.size());
            let way = match &read.face {
                Face::Submit | Face::Pieces(_, Way::Submit) => Way::Submit,
                Face::Batch | Face::Pieces(_, Way::Batch) => Way::Batch,
                Face::LocalSubmit | Face::Pieces(_, Way::LocalSubmit) => Way::LocalSubmit,
                Face::LocalBatch | Face::Pieces(_, Way::LocalBatch) => Way::LocalBatch,
                face if case.direct => {
                    if matches!(face, Face::Blocking) {
                        let mut buffer = Aligned::new(read.len);
                        let result = file.blocking_read_at(&mut *buffer.memory(), offset);
                        brought[i] = Some(Brought::borrowed(result, buffer.memory()));
                    } else {
                        let reading = file.read_at(Aligned::new(read.len), offset);
                        let len = read.len;
                        futures.push(Box::pin(async move { (i, aligned(reading.await, len)) }));
                    }
                    continue;
                }
                face => {
                    match in_future(file, face, i, read.len, offset) {
                        Some(future) => futures.push(future),
                        None => brought[i] = at_once(file, face, read.len, offset, sample),
                    }
                    continue;
                }
            };
            let op = operation(case, file, read, offset).user_data(i as u64);
            match way {
                Way::Submit => match self.engine.submit(op) {
                    Submit::Done(done) => {
                        assert!(done.ticket.is_none());
                        shared_done.push(done);
                    }
                    Submit::Queued(_) => queued += 1,
                    Submit::Full(_) => panic!("32 reads fill a depth of 64"),
                },
                Way::Batch => batch.push(op),
                Way::LocalSubmit => match local.submit(op) {
                    Submit::Done(done) => local_done.push(done),
                    Submit::Queued(_) => {}
                    Submit::Full(_) => panic!("32 reads fill a depth of 64"),
                },
                Way::LocalBatch => local_batch.push(op),
            }
        }
        let taken = self.engine.submit_batch(&mut batch);
        assert!(batch.is_empty());
        local.submit_batch(&mut local_batch);
        assert!(local_batch.is_empty());
        for (i, done) in pollster::block_on(join_all(futures)) {
            brought[i] = Some(done);
        }
        let mut reaped = Vec::new();
        self.engine
            .reap(&mut reaped, Wait::For(queued + taken))
            .expect("reap");
        assert_eq!(reaped.len(), queued + taken);
        local
            .reap(&mut local_done, Wait::For(usize::MAX))
            .expect("reap");
        assert_eq!(local.in_flight(), 0);
        for done in shared_done.into_iter().chain(reaped).chain(local_done) {
            let i = done.op.get_user_data() as usize;
            assert!(brought[i].is_none(), "read {i} came twice");
            brought[i] = Some(of_op(done, case.reads[i].len, case.direct));
        }
        for (i, brought) in brought.iter().enumerate() {
            let read = &case.reads[i];
            let brought = match brought {
                Some(brought) => brought,
                None if matches!(read.face, Face::Cached) => continue,
                None => panic!("read {i} never came"),
            };
            let offset = read.at.resolve(sample.size());
            let context = || format!("read {i}: {read:?} from {offset}");
            let exact = matches!(read.face, Face::FutureExact | Face::BlockingExact);
            brought.compare(sample, offset, exact, case.direct, self.backend, &context);
        }
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Brought {
    fn owned(result: nowait::Result<usize>, provenance: Provenance, buffer: Vec<u8>) -> Brought {
        Brought {
            result,
            provenance: Some(provenance),
            filled: buffer,
            behind: Vec::new(),
            len: 0,
        }
    }

    /// A buffer of fixed length: the bytes behind the count must be unchanged.
    fn fixed(result: nowait::Result<usize>, provenance: Provenance, buffer: &[u8]) -> Brought {
        Brought {
            provenance: Some(provenance),
            ..Brought::borrowed(result, buffer)
        }
    }

    fn borrowed(result: nowait::Result<usize>, buffer: &[u8]) -> Brought {
        let n = *result.as_ref().unwrap_or(&0);
        Brought {
            result,
            provenance: None,
            filled: buffer[..n].to_vec(),
            behind: buffer[n..].to_vec(),
            len: buffer.len(),
        }
    }

    /// Sets the capacity of the read's buffer.
    fn room(mut self, len: usize) -> Brought {
        self.len = len;
        self
    }

    fn compare(
        &self,
        sample: &Sample,
        offset: u64,
        exact: bool,
        direct: bool,
        backend: Backend,
        context: &dyn Fn() -> String,
    ) {
        let expected = sample.expected(offset, self.len);
        match &self.result {
            Err(why) if exact && expected.len() < self.len => {
                assert_eq!(why.kind(), ErrorKind::UnexpectedEof, "{}", context());
            }
            Err(why) => panic!("{}: {why}", context()),
            Ok(n) => {
                assert!(!exact || expected.len() == self.len, "{}", context());
                assert_eq!(*n, expected.len(), "{}: the count", context());
                assert_eq!(self.filled.len(), *n, "{}: the buffer's length", context());
                if self.filled != expected {
                    let at = (0..*n).position(|at| self.filled[at] != expected[at]);
                    let at = at.unwrap();
                    panic!(
                        "{}: of {n} bytes, byte {at} is wrong (the file's {})",
                        context(),
                        offset + at as u64
                    );
                }
                // O_DIRECT may write whole blocks.
                assert!(
                    direct || self.behind == vec![FILL; self.behind.len()],
                    "{}: bytes behind the count were touched",
                    context()
                );
                if let Some(from) = self.provenance {
                    let sum = from.cached + from.device + from.unknown;
                    assert_eq!(sum, *n, "{}: {from:?}", context());
                    assert!(
                        backend == Backend::Uring || from.served_by != ServedBy::Ring,
                        "{}: a ring that is not there",
                        context()
                    );
                    assert!(!direct || from.cached == 0, "{}: {from:?}", context());
                }
            }
        }
    }
}

/// The read as a future, if its method is asynchronous.
fn in_future<'f>(
    file: &'f File,
    face: &Face,
    i: usize,
    len: usize,
    offset: u64,
) -> Option<Reading<'f>> {
    fn array<const N: usize>(file: &File, i: usize, offset: u64) -> Reading<'_> {
        let reading = file.read_at(Box::new([FILL; N]), offset);
        Box::pin(async move {
            let done = reading.await;
            (i, Brought::fixed(done.result, done.provenance, &*done.buf))
        })
    }
    Some(match face {
        Face::FutureVec => {
            let buffer = Vec::with_capacity(len);
            let room = buffer.capacity();
            let reading = file.read_at(buffer, offset);
            Box::pin(async move { (i, vector(reading.await).room(room)) })
        }
        Face::FutureExact => {
            // The earlier content of the buffer must be discarded.
            let buffer = vec![FILL; len];
            let room = buffer.capacity();
            let reading = file.read_exact_at(buffer, offset);
            Box::pin(async move { (i, vector(reading.await).room(room)) })
        }
        Face::FutureBox => {
            let reading = file.read_at(vec![FILL; len].into_boxed_slice(), offset);
            Box::pin(async move {
                let done = reading.await;
                assert_eq!(done.buf.len(), len);
                (i, Brought::fixed(done.result, done.provenance, &done.buf))
            })
        }
        #[cfg(feature = "bytes")]
        Face::FutureBytes => {
            let buffer = bytes::BytesMut::with_capacity(len);
            let room = buffer.capacity();
            let reading = file.read_at(buffer, offset);
            Box::pin(async move {
                let done = reading.await;
                let brought = Brought::owned(done.result, done.provenance, done.buf.to_vec());
                (i, brought.room(room))
            })
        }
        Face::FutureArray => match len % 4 {
            0 => array::<0>(file, i, offset),
            1 => array::<1>(file, i, offset),
            2 => array::<4096>(file, i, offset),
            _ => array::<10_001>(file, i, offset),
        },
        Face::FutureLimit => {
            let reading = file.read_at(Vec::with_capacity(len + 5000).limit(len), offset);
            Box::pin(async move {
                let BufResult {
                    result,
                    buf,
                    provenance,
                    ..
                } = reading.await;
                let buf: Limit<Vec<u8>> = buf;
                let brought = Brought::owned(result, provenance, buf.into_inner());
                (i, brought.room(len))
            })
        }
        _ => return None,
    })
}

fn vector(done: BufResult<Vec<u8>>) -> Brought {
    Brought::owned(done.result, done.provenance, done.buf)
}

fn aligned(mut done: BufResult<Aligned>, len: usize) -> Brought {
    assert_eq!(done.buf.memory().len(), len);
    Brought::fixed(done.result, done.provenance, done.buf.memory())
}

/// The blocking reads. A cached read is compared here: it may return any prefix.
fn at_once(file: &File, face: &Face, len: usize, offset: u64, sample: &Sample) -> Option<Brought> {
    let mut buffer = vec![FILL; len];
    Some(match face {
        Face::Blocking => {
            let result = file.blocking_read_at(&mut buffer, offset);
            Brought::borrowed(result, &buffer)
        }
        Face::BlockingExact => {
            let result = file.blocking_read_exact_at(&mut buffer, offset);
            let result = result.map(|()| len);
            if result.is_err() {
                buffer.clear();
            }
            Brought::borrowed(result, &buffer).room(len)
        }
        Face::BlockingUninit => {
            let mut memory = vec![MaybeUninit::<u8>::uninit(); len];
            let result = file.blocking_read_at(&mut memory[..], offset);
            let n = *result.as_ref().unwrap_or(&0);
            // SAFETY: the read says that it filled the first `n` bytes.
            let filled = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), n) };
            Brought::borrowed(result, filled).room(len)
        }
        Face::Cached => {
            let expected = sample.expected(offset, len);
            let said = nowait::read::cached(file, &mut buffer, offset).expect("cached");
            let n = match said {
                Cached::All(n) => {
                    assert_eq!(n, expected.len(), "all of {len} from {offset}");
                    n
                }
                Cached::Prefix(n) => {
                    assert!(
                        n > 0 && n < expected.len(),
                        "a prefix of {n} of {}",
                        expected.len()
                    );
                    n
                }
                Cached::Nothing | Cached::Unsupported(_) => 0,
            };
            assert!(buffer[..n] == expected[..n], "cached: {len} from {offset}");
            return None;
        }
        other => unreachable!("{other:?} is no call that returns at once"),
    })
}

/// The operation for an engine.
fn operation(case: &Case, file: &File, read: &Request, offset: u64) -> Op {
    let buffer = |len: usize| -> Buffer {
        if case.direct {
            Box::new(Aligned::new(len))
        } else {
            Box::new(vec![FILL; len].into_boxed_slice())
        }
    };
    match &read.face {
        Face::Pieces(parts, _) => {
            let whole = if case.direct { ALIGN } else { 1 };
            let pieces = share_out(read.len, parts, whole).map(buffer).collect();
            Readv::new(file.handle(), pieces, offset).into()
        }
        _ => Read::new(file.handle(), buffer(read.len), offset).into(),
    }
}

/// Divides a length into these parts, each a multiple of `whole`. The last piece takes the rest.
/// A part of 0 is an empty piece.
fn share_out(len: usize, parts: &[u8], whole: usize) -> impl Iterator<Item = usize> {
    let sum = parts.iter().map(|&p| usize::from(p)).sum::<usize>().max(1);
    let mut pieces: Vec<usize> = parts
        .iter()
        .map(|&p| (len / whole * usize::from(p) / sum) * whole)
        .collect();
    pieces.push(len - pieces.iter().sum::<usize>());
    pieces.into_iter()
}

/// The result of an engine's read.
fn of_op(done: Completion, len: usize, direct: bool) -> Brought {
    let open = |buffer: Buffer| -> Vec<u8> {
        if direct {
            let mut buffer = downcast::<Aligned>(buffer).expect("what was given");
            buffer.memory().to_vec()
        } else {
            let buffer = downcast::<Box<[u8]>>(buffer).expect("what was given");
            buffer.into_vec()
        }
    };
    let memory = match done.op.into_kind() {
        Kind::Read(read) => open(read.into_buffer()),
        Kind::Readv(read) => {
            let pieces: Vec<_> = read.into_buffers().into_iter().map(open).collect();
            pieces.concat()
        }
        other => panic!("no read: {other:?}"),
    };
    assert_eq!(memory.len(), len);
    Brought::fixed(done.result, done.provenance, &memory)
}

const ALIGN: usize = 4096;

/// Memory for O_DIRECT.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let memory = vec![FILL; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        Aligned { memory, start, len }
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl IoBufMut for Aligned {
    fn as_uninit(&mut self) -> UninitSlice<'_> {
        self.memory().into()
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

// -------------------------------------------------------------------------------------- appends

impl Bench<'_> {
    /// While a file grows, its earlier bytes are read exactly. Later bytes may be returned, too, but no
    /// byte that was never written.
    fn read_while_appended(&self, seed: u64, mode: Mode) {
        const BEFORE: u64 = 300_001;
        const AFTER: u64 = 2 * MIB;
        let path = self.dir.join("growing");
        fs::write(&path, bytes(seed, 0..BEFORE)).expect("write");
        evict(&path);
        let truth = bytes(seed, 0..AFTER + MIB);
        let size = AtomicU64::new(BEFORE);
        let file = OpenOptions::new()
            .read(true)
            .cache_mode(mode)
            .engine(&self.engine)
            .blocking_open(&path)
            .expect("open");
        let append = || {
            let mut file = fs::File::options().append(true).open(&path).expect("open");
            let mut at = BEFORE;
            while at < AFTER {
                let random = bytes(seed + 1, at..at + 1)[0];
                let piece = 1 + (u64::from(random) * 61) % 9_000;
                file.write_all(&truth[at as usize..(at + piece) as usize])
                    .expect("append");
                at += piece;
                size.store(at, Ordering::Release);
                std::thread::sleep(Duration::from_micros(20));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(append);
            let mut turn = 0;
            loop {
                let known = size.load(Ordering::Acquire);
                let reads: Vec<(u64, usize)> = (0..8)
                    .map(|i| {
                        let at = 8 * (turn + i) + 1;
                        let r = u64::from(bytes(seed, at..at + 1)[0]);
                        (known.saturating_sub(r * 97 * (i + 1)), r as usize * 401)
                    })
                    .collect();
                let all = reads
                    .iter()
                    .map(|&(at, len)| file.read_at(Vec::with_capacity(len), at));
                let done = pollster::block_on(join_all(all));
                for ((at, len), done) in reads.into_iter().zip(done) {
                    let n = done.result.expect("read");
                    let context = || format!("{n} of {len} from {at}, the size was {known}");
                    assert!(n as u64 >= (known - at).min(len as u64), "{}", context());
                    let truth = &truth[at as usize..at as usize + n];
                    assert!(done.buf[..] == *truth, "{}", context());
                }
                turn += 8;
                if known >= AFTER {
                    break;
                }
            }
        });
    }
}

// --------------------------------------------------------------------------------------- writes

/// Writes to a new file, one after the other.
#[derive(Clone, Debug)]
struct Writing {
    cold_after: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Random bytes at an offset.
    Write(Writer, u64, usize),
    /// Writes that don't overlap, at the same time: offset of the first, number, length.
    Together(u64, u64, usize),
    /// Evicts the written pages between two steps.
    Evict,
    /// Reads the whole file through the library.
    ReadBack,
}

#[derive(Clone, Copy, Debug)]
enum Writer {
    At,
    AllAt,
    Blocking,
    BlockingAll,
    Submit,
    LocalSubmit,
    Pieces,
    LocalPieces,
}

fn a_writing() -> impl Strategy<Value = Writing> {
    let writer = prop::sample::select(vec![
        Writer::At,
        Writer::AllAt,
        Writer::Blocking,
        Writer::BlockingAll,
        Writer::Submit,
        Writer::LocalSubmit,
        Writer::Pieces,
        Writer::LocalPieces,
    ]);
    let len = prop_oneof![
        1 => Just(0),
        6 => 1usize..9_000,
        3 => 1usize..200_000,
        1 => 256usize << 10..1 << 20
    ];
    let at =
        prop_oneof![2 => 0u64..20_000, 2 => (0u64..64).prop_map(|p| p * 4096), 1 => 0..2 * MIB];
    let step = prop_oneof![
        12 => (writer, at, len).prop_map(|(w, at, len)| Step::Write(w, at, len)),
        2 => (0..MIB, 2u64..32, 1usize..20_000).prop_map(|(at, n, len)| Step::Together(at, n, len)),
        2 => Just(Step::Evict),
        2 => Just(Step::ReadBack),
    ];
    (any::<bool>(), prop::collection::vec(step, 1..24))
        .prop_map(|(cold_after, steps)| Writing { cold_after, steps })
}

impl Bench<'_> {
    /// Carries out the writes of a case on a file and on a model. pread(2) must then return the model.
    fn write(&self, writing: &Writing) {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("written-{number}"));
        let file = self.create(&path);
        let mut model = Vec::new();
        for (i, step) in writing.steps.iter().enumerate() {
            let fresh = |at: u64, len: usize| bytes(i as u64 + 1, at..at + len as u64);
            match step {
                Step::Write(writer, at, len) => {
                    let data = fresh(*at, *len);
                    let n = self.write_one(&file, *writer, *at, &data);
                    apply(&mut model, *at, &data[..n]);
                }
                Step::Together(at, count, len) => {
                    let data = |k: u64| {
                        let at = at + k * (*len as u64 + 7);
                        (at, fresh(at, *len))
                    };
                    let all = (0..*count).map(|k| {
                        let (at, data) = data(k);
                        file.write_all_at(data, at)
                    });
                    for (k, done) in pollster::block_on(join_all(all)).into_iter().enumerate() {
                        let (at, data) = data(k as u64);
                        assert_eq!(done.result.expect("write"), *len);
                        assert_eq!(done.buf, data);
                        apply(&mut model, at, &data);
                    }
                }
                Step::Evict => {
                    pollster::block_on(file.sync_data()).expect("sync_data");
                    evict(&path);
                }
                Step::ReadBack => {
                    let room = model.len() + 100;
                    let done = pollster::block_on(file.read_at(Vec::with_capacity(room), 0));
                    assert_eq!(done.result.expect("read"), model.len());
                    assert!(done.buf == model, "step {i} reads something else");
                }
            }
        }
        pollster::block_on(file.sync_data()).expect("sync_data");
        if writing.cold_after {
            evict(&path);
        }
        assert_eq!(file.len().expect("len"), model.len() as u64);
        let mut seen = vec![0; model.len()];
        fs::File::open(&path)
            .and_then(|file| file.read_exact_at(&mut seen, 0))
            .expect("pread");
        if seen != model {
            let wrong = (0..model.len()).find(|&at| seen[at] != model[at]);
            panic!("the first wrong byte: {wrong:?}");
        }
        fs::remove_file(&path).expect("unlink");
    }

    fn create(&self, path: &Path) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .create_new(true)
            .engine(&self.engine)
            .blocking_open(path)
            .expect("open")
    }

    /// Makes one write. Returns the number of bytes written.
    fn write_one(&self, file: &File, writer: Writer, at: u64, data: &[u8]) -> usize {
        let whole = || Op::from(Write::new(file.handle(), Box::new(data.to_vec()), at).all());
        let pieces = || {
            let lens: Vec<usize> = share_out(data.len(), &[1, 0, 3, 2], 1).collect();
            let mut rest = data;
            let mut sources: Vec<nowait::buffer::Source> = Vec::new();
            for len in lens {
                let (piece, more) = rest.split_at(len);
                sources.push(Box::new(piece.to_vec()));
                rest = more;
            }
            Op::from(Writev::new(file.handle(), sources, at))
        };
        match writer {
            Writer::At | Writer::AllAt => {
                let writing = if matches!(writer, Writer::At) {
                    file.write_at(data.to_vec(), at)
                } else {
                    file.write_all_at(data.to_vec(), at)
                };
                let done = pollster::block_on(writing);
                assert_eq!(done.buf, data);
                done.result.expect("write")
            }
            Writer::Blocking => file.blocking_write_at(data, at).expect("write"),
            Writer::BlockingAll => {
                file.blocking_write_all_at(data, at).expect("write");
                data.len()
            }
            Writer::Submit => self.shared(whole()),
            Writer::Pieces => self.shared(pieces()),
            Writer::LocalSubmit => self.locally(whole(), file),
            Writer::LocalPieces => self.locally(pieces(), file),
        }
    }

    fn shared(&self, op: Op) -> usize {
        let mut done = Vec::new();
        match self.engine.submit(op) {
            Submit::Done(completion) => done.push(completion),
            Submit::Queued(_) => {
                self.engine.reap(&mut done, Wait::For(1)).expect("reap");
            }
            Submit::Full(_) => panic!("full"),
        }
        done.remove(0).result.expect("write")
    }

    /// On the local engine, followed by fdatasync(2).
    fn locally(&self, op: Op, file: &File) -> usize {
        let mut local = self.local.borrow_mut();
        let mut done = Vec::new();
        for op in [op, Fsync::data(file.handle()).into()] {
            match local.submit(op) {
                Submit::Done(completion) => done.push(completion),
                Submit::Queued(_) => {
                    local.reap(&mut done, Wait::For(1)).expect("reap");
                }
                Submit::Full(_) => panic!("full"),
            }
        }
        done.remove(0).result.expect("write")
    }
}

/// Applies a write to the model. Bytes between its end and the write become zeros.
fn apply(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let (at, end) = (at as usize, at as usize + data.len());
    if model.len() < end {
        model.resize(end, 0);
    }
    model[at..end].copy_from_slice(data);
}
