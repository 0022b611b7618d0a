//! fork(2) while other threads hold any lock of the library. The child still opens files, reads them, scans
//! directories and makes engines.
#![allow(unsafe_code, reason = "alarm(2), fork(2), waitpid(2)")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nowait::buffer::BufferPool;
use nowait::engine::{Engine, Feature, Options, Submit, Wait};
use nowait::op::{Nop, Op, Read};
use nowait::{File, Handle, Mode, RwFlags};

use crate::common::backends::backends;
use crate::common::by_workers::by_workers;
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::completions::one;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::handles::handle;
use crate::common::shared_engine::each_shared;
use crate::common::wait::LONG;
use crate::process_one::forked_as_process_one;

/// Files and directories to open, read and scan.
struct Ground {
    dir: tempfile::TempDir,
    file: PathBuf,
}

const LEN: usize = 100_000;

impl Ground {
    fn new() -> Ground {
        let dir = scratch();
        let file = patterned(dir.path(), "file", LEN);
        for i in 0..200 {
            std::fs::write(dir.path().join(i.to_string()), "").unwrap();
        }
        Ground { dir, file }
    }

    /// Opens files of several filesystems. A child opens a file of yet another one.
    fn open(&self) {
        for path in [
            &*self.file,
            Path::new("/proc/self/stat"),
            Path::new("/dev/null"),
        ] {
            drop(handle(path));
        }
        // Values that are asked for once and remembered.
        let _ = handle(&self.file).filesystem().rotating();
        let _ = nowait::support::Kernel::get();
    }

    fn read(&self, file: &File) {
        // The first question about residency is remembered with the file.
        let _ = file.residency().is_resident(0, 4096).unwrap();
        let done = pollster::block_on(file.read_at(Vec::with_capacity(LEN), 0));
        assert!(done.buf == pattern(0, LEN));
        pollster::block_on(file.sync_data()).unwrap();
    }

    fn scan(&self, options: &nowait::scan::Options) {
        let mut scan = options.blocking_open(self.dir.path()).unwrap();
        assert_eq!(by_workers(&mut scan).map(Result::unwrap).count(), 201);
    }

    fn make_engines(&self) {
        for backend in backends() {
            let options = Options::new().backend(backend).depth(8).workers(2);
            let mut shared = options.build().unwrap();
            one(&mut shared, Nop);
            let far = Instant::now() + LONG;
            one(&mut shared, Op::from(Nop).deadline(far));
            let _ = (shared.support(Feature::Polled), shared.event_fd().unwrap());
            one(&mut options.build_local().unwrap(), Nop);
        }
    }

    /// The work of a child. It uses nothing of its parent but the paths.
    fn in_child(&self) {
        // SAFETY: no memory is involved. A child that hangs ends with a signal.
        unsafe { libc::alarm(LONG.as_secs() as u32) };
        // On a filesystem that the parent has not opened a file on.
        drop(handle(Path::new("/sys/kernel/mm")));
        self.open();
        self.make_engines();
        self.read(&pollster::block_on(File::open(&self.file)).unwrap());
        self.scan(&nowait::scan::Options::new());
    }
}

/// Submits, reaps and cancels on an engine that other threads use, too.
fn drive(engine: &Engine, ground: &Ground) {
    let open = handle(&ground.file);
    let far = Instant::now() + LONG;
    let read = || Read::new(&open, Box::new(vec![0u8; 4096]), 0).flags(RwFlags::HIPRI);
    let mut ops = vec![Op::from(read()).deadline(far), Op::from(Nop).deadline(far)];
    engine.submit_batch(&mut ops);
    if let Submit::Queued(ticket) = engine.submit(read().into()) {
        engine.cancel(ticket);
    }
    let _ = engine.support(Feature::Polled);
    engine.reap(&mut Vec::new(), Wait::No).unwrap();
}

/// Runs `forks` while other threads take every lock again and again.
fn under_load(engine: &Engine, ground: &Ground, forks: impl FnOnce()) {
    let pool = BufferPool::new(2, 100).unwrap();
    let opened = || std::fs::File::open(&ground.file).unwrap();
    let scans = nowait::scan::Options::new().engine(engine);
    let loads: [&(dyn Fn() + Sync); 9] = [
        &|| drop(handle(&ground.file)),
        &|| drop(handle(&ground.file)),
        &|| ground.open(),
        &|| ground.make_engines(),
        &|| ground.read(&File::from_fd(opened(), engine).unwrap()),
        &|| {
            evict(&ground.file);
            let strict = Handle::with_mode(opened(), Mode::Strict).unwrap();
            ground.read(&File::from_handle(&strict, engine));
        },
        &|| ground.scan(&scans),
        &|| drive(engine, ground),
        &|| drop((pool.take(), pool.take())),
    ];
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let loads = loads.map(|load| {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    load();
                }
            })
        });
        let forked = catch_unwind(AssertUnwindSafe(forks));
        over.store(true, Ordering::Relaxed);
        // Completions hold places until they are reaped. Threads may still wait for a place when `drive` has
        // ended.
        while !loads.iter().all(|load| load.is_finished()) {
            engine.reap(&mut Vec::new(), Wait::No).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        forked.unwrap();
    });
    engine.reap(&mut Vec::new(), Wait::For(usize::MAX)).unwrap();
    one(&mut engine.clone(), Nop);
}

/// Forks as often as `most`, or as a slow machine manages in some seconds.
fn repeatedly(most: usize, fork: impl Fn()) {
    let end = Instant::now() + Duration::from_secs(8);
    for at in 0..most {
        if at >= 3 && Instant::now() > end {
            break;
        }
        fork();
    }
}

#[test]
fn no_child_of_a_busy_process_hangs() {
    alone(|| {
        let ground = Ground::new();
        each_shared(Options::new().depth(8).workers(4), |engine| {
            under_load(engine, &ground, || {
                repeatedly(50, || forked("a child", || ground.in_child()));
            });
        });
    });
}

#[test]
fn nor_does_one_in_a_namespace_of_its_own() {
    alone(|| {
        let ground = Ground::new();
        each_shared(Options::new().depth(8).workers(4), |engine| {
            under_load(engine, &ground, || {
                repeatedly(30, || {
                    forked_as_process_one("a child", || ground.in_child())
                });
            });
        });
    });
}

#[test]
fn a_process_of_that_kind_can_itself_be_a_parent() {
    alone(|| {
        let ground = Ground::new();
        forked_as_process_one("the parent", || {
            let engine = Options::new().depth(8).workers(4).build().unwrap();
            File::blocking_open(&ground.file).unwrap();
            under_load(&engine, &ground, || {
                repeatedly(30, || {
                    forked_as_process_one("a child", || {
                        let refused = engine.reap(&mut Vec::new(), Wait::For(1));
                        assert_eq!(refused.unwrap_err().kind(), nowait::ErrorKind::Forked);
                        ground.in_child();
                    });
                });
            });
        });
    });
}
