//! Provenance: the three counts add up, and no count claims more than is known.

use nowait::engine::{Backend, Options, Submit};
use nowait::op::{Op, Read, Readv};
use nowait::read::{Cached, cached};
use nowait::{Completion, Handle, Mode, OpenOptions, Provenance, ServedBy};
use rustix::fs::OFlags;
use slowdisk::{Fault, Filesystem, require};

use crate::common::cache::evict;
use crate::common::completions::{finish, one, said};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{patterned, scratch};
use crate::common::handles::{handle, pipe};
use crate::common::rig::Rig;
use crate::common::shared_engine::each_shared;

const SIZE: usize = 256 << 10;
const PAGE: usize = 4096;

fn sum(p: Provenance) -> usize {
    p.cached + p.device + p.unknown
}

fn batch(engine: &mut dyn Drive, open: &Handle, offsets: &[u64], len: usize) -> Vec<Completion> {
    let read = |at: &u64| {
        Op::from(Read::new(
            open,
            Box::new(Vec::<u8>::with_capacity(len)),
            *at,
        ))
    };
    let mut ops: Vec<Op> = offsets.iter().map(|at| read(at).user_data(*at)).collect();
    assert_eq!(engine.submit_batch(&mut ops), offsets.len());
    finish(engine, offsets.len())
}

/// These tests need cached reads on the filesystem of the build.
fn cached_reads_work(open: &Handle) -> bool {
    let works = matches!(cached(open, &mut [0; 16], 0), Ok(Cached::All(16)));
    if !works {
        slowdisk::skip_or_fail("no cached reads on the build's filesystem");
    }
    works
}

#[test]
fn the_counts_add_up_warm_and_cold() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE - 100);
        let open = handle(&path);
        for cold in [false, true, true] {
            for (at, len) in [
                (0, PAGE),
                (5, 100),
                (0, SIZE),
                (SIZE - 5000, 9000),
                (SIZE, 10),
            ] {
                if cold {
                    evict(&path);
                }
                let alone = one(
                    engine,
                    Read::new(&open, Box::new(vec![0u8; len]), at as u64),
                );
                let together = batch(engine, &open, &[at as u64; 3], len);
                let vector: Vec<_> = (0..3)
                    .map(|_| Box::new(vec![0u8; len / 3 + 1]) as _)
                    .collect();
                let vector = one(engine, Readv::new(&open, vector, at as u64));
                for done in together.iter().chain([&alone, &vector]) {
                    let what = format!("{} {len}@{at} cold {cold}", name(engine));
                    assert_eq!(sum(done.provenance), said(done).unwrap(), "{what}");
                }
            }
        }
    });
}

#[test]
fn a_warm_batch_on_a_ring_is_cached_and_the_rings() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let open = handle(&path);
        std::fs::read(&path).unwrap();
        if !cached_reads_work(&open) {
            return;
        }
        let offsets: Vec<u64> = (0..64).map(|i| i * PAGE as u64).collect();
        // The first read of a file is tried in the caller: an early completion means a cached read
        // only if the file is known to support NOWAIT.
        let first = batch(engine, &open, &offsets[..1], PAGE).remove(0);
        assert_eq!(
            (first.provenance.cached, first.provenance.served_by),
            (PAGE, ServedBy::Caller)
        );
        for done in batch(engine, &open, &offsets, PAGE) {
            let p = done.provenance;
            assert_eq!(sum(p), PAGE);
            match (engine.backend(), engine.is_local()) {
                // A completion that is there when submit returns did not wait.
                (Backend::Uring, true) => {
                    assert_eq!((p.cached, p.served_by), (PAGE, ServedBy::Ring));
                }
                // The owner may be interrupted between the submission and its check: then the count is
                // unknown.
                (Backend::Uring, false) => assert_eq!((p.device, p.served_by), (0, ServedBy::Ring)),
                (Backend::Threads, _) => {
                    assert_eq!((p.cached, p.served_by), (PAGE, ServedBy::Caller));
                }
            }
        }
        if engine.backend() == Backend::Uring && engine.is_local() {
            assert_eq!(engine.stats().ring_hits, 64);
        }
    });
}

#[test]
fn a_cold_page_of_a_strict_file_is_not_called_cached() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let open = std::fs::File::open(&path).unwrap();
        let open = Handle::with_mode(open, Mode::Strict).unwrap();
        std::fs::read(&path).unwrap();
        if !cached_reads_work(&open) {
            return;
        }
        evict(&path);
        for i in [3u64, 50, 20, 9, 33] {
            let at = i * PAGE as u64;
            let done = one(engine, Read::new(&open, Box::new(vec![0u8; PAGE]), at));
            let p = done.provenance;
            assert_eq!((sum(p), p.cached), (PAGE, 0), "{}: {p:?}", name(engine));
            assert_ne!(p.served_by, ServedBy::Caller, "{}", name(engine));
            // Now it is cached.
            let done = one(engine, Read::new(&open, Box::new(vec![0u8; PAGE]), at));
            let p = done.provenance;
            assert_eq!(
                (p.cached, p.served_by),
                (PAGE, ServedBy::Caller),
                "{}",
                name(engine)
            );
        }
        let stats = engine.stats();
        assert_eq!(
            (stats.hits, stats.misses, stats.races),
            (5, 5, 0),
            "{}",
            name(engine)
        );
    });
}

#[test]
fn what_goes_around_the_page_cache_is_the_devices() {
    each_shared(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        std::fs::read(&path).unwrap();
        let mut direct = OpenOptions::new();
        direct.read(true).direct(true).engine(engine);
        let Ok(file) = direct.blocking_open(&path) else {
            return slowdisk::skip_or_fail("no O_DIRECT on the build's filesystem");
        };
        let before = engine.stats();
        for i in 0..10 {
            let done = pollster::block_on(file.read_at(Aligned::new(), i * 8192));
            let p = done.provenance;
            assert_eq!(done.result.unwrap(), 8192);
            assert_eq!((p.cached, p.device, p.unknown), (0, 8192, 0));
            assert_ne!(p.served_by, ServedBy::Caller);
        }
        assert_eq!(
            engine.stats().hits,
            before.hits,
            "the page cache is never tried"
        );
    });
    each(Options::new(), |engine| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", SIZE);
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let Ok(open) = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()) else {
            return slowdisk::skip_or_fail("no O_DIRECT on the build's filesystem");
        };
        let open = Handle::new(open).unwrap();
        let mut ops: Vec<Op> = (0..16)
            .map(|i| Read::new(&open, Box::new(Aligned::new()), i * 8192).into())
            .collect();
        engine.submit_batch(&mut ops);
        for done in finish(engine, 16) {
            let p = done.provenance;
            assert_eq!(
                (p.cached, p.device, p.unknown),
                (0, 8192, 0),
                "{}",
                name(engine)
            );
        }
        assert_eq!(engine.stats().ring_hits, 0, "{}", name(engine));
    });
}

#[test]
fn a_pipe_is_neither() {
    each(Options::new(), |engine| {
        let (reader, writer) = pipe();
        rustix::io::write(&writer, b"abc").unwrap();
        let done = one(engine, Read::stream(&reader, Box::new(vec![0u8; 10])));
        let p = done.provenance;
        assert_eq!(
            (said(&done), p.cached, p.device),
            (Ok(3), 0, 0),
            "{}",
            name(engine)
        );
    });
}

#[test]
fn a_failed_read_has_none() {
    each(Options::new(), |engine| {
        let dir = scratch();
        let open = handle(dir.path());
        let done = one(engine, Read::new(&open, Box::new(vec![0u8; 10]), 0));
        assert_eq!((said(&done), sum(done.provenance)), (Err(libc::EISDIR), 0));
    });
}

/// Two pages, aligned for O_DIRECT.
#[repr(align(4096))]
struct Pages([u8; 8192]);

struct Aligned(Box<Pages>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(Box::new(Pages([0; 8192])))
    }
}

#[allow(unsafe_code, reason = "the trait's one unsafe method")]
impl nowait::IoBufMut for Aligned {
    fn as_uninit(&mut self) -> nowait::buffer::UninitSlice<'_> {
        nowait::buffer::UninitSlice::Init(&mut self.0.0)
    }
    unsafe fn set_filled(&mut self, _: usize) {}
}

/// Opens a file that the kernel reads nothing ahead of, and reads these of its pages into the page cache.
fn with_cached_pages(path: &std::path::Path, pages: &[u64]) -> Handle {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    for page in pages {
        let at = page * PAGE as u64;
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut [0; PAGE], at).unwrap();
    }
    Handle::new(file).unwrap()
}

#[test]
fn a_read_of_several_pages_knows_which_were_cached() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    for mode in [Mode::Eager, Mode::Strict] {
        each(Options::new().mode(mode), |engine| {
            let path = rig.cold("several");
            let open = with_cached_pages(&path, &[4, 5, 9, 20, 25, 28, 33]);
            // Offset and length in bytes, and how many of them are cached.
            for (at, len, cached) in [
                (PAGE * 4, PAGE * 16, PAGE * 3),
                (PAGE * 20 + 100, PAGE * 2, PAGE - 100),
                // The bytes of one page, in two pages.
                (PAGE * 24 + 2048, PAGE, PAGE - 2048),
                (PAGE * 28 + 2048, PAGE, PAGE - 2048),
                (PAGE * 32, PAGE + 700, 700),
                (PAGE * 40, PAGE * 16, 0),
                (PAGE * 62, PAGE * 16, 0),
            ] {
                // The device answers when the pages have been counted.
                let faults = rig.fault(&path, Fault::stall);
                let read = Read::new(&open, Box::new(vec![0; len]), at as u64);
                assert!(matches!(engine.submit(Op::from(read)), Submit::Queued(_)));
                rig.release(faults);
                let done = finish(engine, 1).remove(0);
                let p = done.provenance;
                let n = said(&done).unwrap();
                let what = format!("{} {mode:?} {len}@{at}: {p:?}", name(engine));
                assert_eq!((p.cached, p.unknown), (cached, 0), "{what}");
                assert_eq!(sum(p), n, "{what}");
            }
        });
    }
}

#[test]
fn many_cold_reads_are_known_to_be_the_devices() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let rig = Rig::new();
    each(Options::new().depth(64), |engine| {
        let path = rig.cold("many");
        let open = with_cached_pages(&path, &[]);
        // Many misses: most reads skip the try after a while.
        for _ in 0..16 {
            evict(&path);
            // The device answers when all reads have been submitted, and their pages counted.
            let faults = rig.fault(&path, Fault::stall);
            for i in 0..32 {
                let read = Read::new(&open, Box::new(vec![0; 2 * PAGE]), i * 2 * PAGE as u64);
                assert!(matches!(engine.submit(Op::from(read)), Submit::Queued(_)));
            }
            rig.release(faults);
            for done in finish(engine, 32) {
                let p = done.provenance;
                let known = (p.cached, p.device, p.unknown) == (0, 2 * PAGE, 0);
                assert!(known, "{}: {p:?}", name(engine));
            }
        }
    });
}
