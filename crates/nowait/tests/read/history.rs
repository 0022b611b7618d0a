//! The hit history of a file. All clones of a handle share it, it is bounded, and it can be read. If the
//! hit rate of a file changes, its reads follow within a thousand reads. A read that is alone on its engine
//! tries the page cache whatever the history is.

use std::path::Path;
use std::time::Duration;

use nowait::engine::{Engine, Options};
use nowait::op::{Nop, Read};
use nowait::read::{Cached, Plan, Reason, cached};
use nowait::{File, OpenOptions};
use rustix::fs::Advice;
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, require};

use crate::common::cache::evict;
use crate::common::completions::{finish, one, queued};
use crate::common::drive::{Drive, each, name};
use crate::common::files::{byte_at, patterned, scratch};
use crate::common::handles::handle;
use crate::common::rig::Rig;
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

const PAGE: usize = 4096;
/// Enough pages to read each once while the hit rate changes twice.
const PAGES: u64 = 3 * MOST;
/// The number of reads within which the history must follow.
const MOST: u64 = 1_000;

/// A file without readahead: a read caches no page of another read.
fn open(path: &Path, engine: &Engine) -> File {
    let mut file = OpenOptions::new();
    file.read(true).engine(engine);
    let file = file.blocking_open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
    file
}

fn read(file: &File, page: u64) {
    let done = pollster::block_on(file.read_at(Vec::with_capacity(PAGE), page * PAGE as u64));
    assert_eq!(done.result.unwrap(), PAGE);
    assert_eq!(done.buf[0], byte_at(page * PAGE as u64));
}

/// A file of which some pages are cached.
fn warmed(dir: &Path, pages: usize) -> Option<std::path::PathBuf> {
    let path = patterned(dir, "file", pages * PAGE);
    let open = std::fs::File::open(&path).unwrap();
    match cached(&open, &mut [0; 16], 0) {
        Ok(Cached::All(_)) => Some(path),
        other => {
            slowdisk::skip_or_fail(format!(
                "no cached reads on the build's filesystem: {other:?}"
            ));
            None
        }
    }
}

#[test]
fn clones_share_it_and_other_openings_have_their_own() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let disk = slow();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let path = patterned(mount.path(), "file", 64 * PAGE);
    each_shared(Options::new(), |engine| {
        let file = open(&path, engine);
        assert_eq!(file.history().hit_rate, 1.0, "a new file");
        let clone = file.clone();
        evict(&path);
        (0..32).for_each(|page| read(&file, page));
        let low = file.history().hit_rate;
        assert!(low < 1.0, "{low}");
        assert_eq!(clone.history().hit_rate, low);
        drop(file);
        assert_eq!(clone.history().hit_rate, low, "it outlives the first clone");
        std::fs::read(&path).unwrap();
        (0..32).for_each(|page| read(&clone, page));
        assert!(clone.history().hit_rate > low);
        assert_eq!(open(&path, engine).history().hit_rate, 1.0);
    });
}

#[test]
fn it_is_a_rate_whatever_many_threads_teach_it() {
    let dir = scratch();
    let Some(path) = warmed(dir.path(), 64) else {
        return;
    };
    each_shared(Options::new(), |engine| {
        let file = open(&path, engine);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (file, path) = (file.clone(), &path);
                scope.spawn(move || {
                    for i in 0..20_000u64 {
                        if i % 2_000 == 0 && thread == 0 {
                            evict(path);
                        }
                        read(&file, (i * 7 + thread) % 64);
                        let rate = file.history().hit_rate;
                        assert!((0.0..=1.0).contains(&rate), "{rate}");
                    }
                });
            }
        });
    });
}

/// A device that is so slow that a try does not find pages whose read it has started itself.
fn slow() -> SlowDisk {
    SlowDisk::builder()
        .size(64 << 20)
        .latency(Duration::from_micros(300))
        .queue(64)
        .build()
        .unwrap()
}

#[test]
fn plans_follow_a_file_that_turns_over_within_a_thousand_reads() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let disk = slow();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let path = patterned(mount.path(), "file", PAGES as usize * PAGE);
    each_shared(Options::new(), |engine| {
        let what = engine.backend();
        // A read that is alone is always tried. A completion that is not reaped counts as in flight.
        queued(&mut engine.clone(), Nop);
        let mut pages = (0..PAGES).map(|i| i * 7 % PAGES);
        let file = open(&path, engine);
        // A try that takes long, as on a busy machine, makes the engine ask first for a second.
        let plan_of_file = || {
            wait_until("the engine is not congested", || {
                file.plan(PAGE) != Plan::AskFirst
            });
            file.plan(PAGE)
        };
        let mut reads_until = |plan: Plan| {
            let reads = pages.by_ref().take(MOST as usize);
            let mut reads = reads.inspect(|page| read(&file, *page));
            while plan_of_file() != plan {
                assert!(reads.next().is_some(), "{what}: not yet {plan:?}");
            }
            // The state must last.
            reads.by_ref().take(50).for_each(drop);
            assert_eq!(plan_of_file(), plan, "{what}");
        };
        std::fs::read(&path).unwrap();
        reads_until(Plan::CacheFirst);
        evict(&path);
        reads_until(Plan::Queue(Reason::LowHitRate));
        std::fs::read(&path).unwrap();
        reads_until(Plan::CacheFirst);
        finish(&mut engine.clone(), 1);
    });
}

#[test]
fn a_read_that_is_alone_on_its_engine_tries_whatever_the_history_says() {
    require!(slowdisk::available());
    require!(Filesystem::Ext4.available());
    let disk = slow();
    let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
    let path = patterned(mount.path(), "file", PAGES as usize * PAGE);
    let rig = Rig::new();
    each(Options::new(), |engine| {
        let what = name(engine);
        evict(&path);
        let file = handle(&path);
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        let mut pages = (0..PAGES).map(|i| i * 7 % PAGES);
        let mut read = |engine: &mut dyn Drive, n: usize| {
            for page in pages.by_ref().take(n) {
                let at = page * PAGE as u64;
                one(engine, Read::new(&file, Box::new(vec![0u8; PAGE]), at));
            }
        };
        read(engine, MOST as usize);
        assert_eq!(engine.stats().skipped, 0, "{what}: alone");

        let company = rig.cold("company");
        let stall = rig.fault(&company, Fault::stall);
        queued(
            engine,
            Read::new(&handle(&company), Box::new(vec![0; 1]), 0),
        );
        read(engine, 64);
        let skipped = engine.stats().skipped;
        assert!(skipped > 0, "{what}: in company");

        rig.release(stall);
        finish(engine, 1);
        read(engine, 64);
        assert_eq!(engine.stats().skipped, skipped, "{what}: alone again");
    });
}
