//! The provenance of a ring's reads, compared with cachestat(2): no byte is reported as cached that was not,
//! on any kind of ring, and a plain ring reports the bytes that it found cached.

use std::path::Path;

use nowait::engine::{Backend, Options};
use nowait::op::{Op, Read};
use nowait::read::NowaitPolicy;
use nowait::residency::page_map;
use nowait::{Handle, Provenance};
use test_support::{Excuse, repeat};

use crate::common::cache::evict;
use crate::common::completions::{finish, one};
use crate::common::drive::{Drive, name};
use crate::common::files::{patterned, scratch};
use crate::common::kinds::AnyKind;
use crate::common::rings::each_ring;

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// The cached pages, counted by cachestat(2).
fn cached(file: &Handle) -> Vec<bool> {
    let map = page_map(file, 0..(PAGES * PAGE) as u64).unwrap();
    let map = map.known().expect("cachestat of the build's filesystem");
    let at = |page: usize| map.is_resident((page * PAGE) as u64);
    (0..PAGES).map(at).collect()
}

fn make(path: &Path, which: impl Fn(usize) -> bool) {
    evict(path);
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    for page in (0..PAGES).filter(|page| which(*page)) {
        let mut buffer = [0; PAGE];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut buffer, (page * PAGE) as u64)
            .unwrap();
    }
}

fn read_all(engine: &mut AnyKind, file: &Handle) -> Vec<Provenance> {
    let mut ops: Vec<Op> = (0..PAGES)
        .map(|page| {
            let read = Read::new(file, engine.buffer(PAGE), (page * PAGE) as u64);
            Op::from(read).user_data(page as u64)
        })
        .collect();
    assert_eq!(engine.submit_batch(&mut ops), PAGES);
    let mut all = vec![Provenance::default(); PAGES];
    for done in finish(engine, PAGES) {
        all[done.op.get_user_data() as usize] = done.provenance;
    }
    all
}

#[test]
fn what_is_called_cached_was_and_what_is_called_the_devices_was_not() {
    for state in ["cold", "warm", "half"] {
        let which = |page: usize| match state {
            "cold" => false,
            "warm" => true,
            _ => page.is_multiple_of(2),
        };
        each_ring(
            Options::new().nowait_policy(NowaitPolicy::Never),
            |engine| {
                let dir = scratch();
                let path = patterned(dir.path(), "file", PAGES * PAGE);
                let plain = std::fs::File::open(&path).unwrap();
                rustix::fs::fadvise(&plain, 0, None, rustix::fs::Advice::Random).unwrap();
                let file = engine.file(&Handle::new(plain).unwrap());
                // An immediate completion means a cached read only if the file supports NOWAIT.
                make(&path, |page| page == 0);
                let learns = Options::new().backend(Backend::Threads).build().unwrap();
                let learnt = one(
                    &mut learns.clone(),
                    Read::new(&file, Box::new(vec![0; 1]), 0),
                );
                assert_eq!(learnt.provenance.cached, 1, "of the build's filesystem");
                let what = format!("{} {state}", name(engine));
                // The kernel tries the page cache twice at submission. If the submitting thread is preempted
                // in between, the page may have come from the device.
                let (before, hits, all) = repeat(&what, &[Excuse::AnyPreempted], || {
                    make(&path, which);
                    let before = cached(&file);
                    let hits = engine.stats().ring_hits;
                    let all = read_all(engine, &file);
                    let is_wrong = |(p, was): (&Provenance, &bool)| p.cached > 0 && !was;
                    match all.iter().zip(&before).any(is_wrong) {
                        true => Err("pages of the device are called cached"),
                        false => Ok((before, hits, all)),
                    }
                });
                for (page, (p, was)) in all.iter().zip(&before).enumerate() {
                    assert_eq!(p.cached + p.device + p.unknown, PAGE, "{what} {page}");
                    assert!(p.cached == 0 || *was, "{what}: {page} was not cached");
                    assert!(p.device == 0 || !*was, "{what}: {page} was cached");
                }
                let called = all.iter().filter(|p| p.cached == PAGE).count() as u64;
                let counted = engine.stats().ring_hits - hits;
                // The counter includes completions that came at once and may have been cached.
                assert!(
                    counted >= called,
                    "{what}: {counted} counted, {called} called so"
                );
                if engine.is_local() && counted > 0 {
                    // A plain local ring submits in the calling thread: all cached pages are found.
                    let were = before.iter().filter(|was| **was).count() as u64;
                    assert_eq!(called, were, "{what}");
                }
            },
        );
    }
}
