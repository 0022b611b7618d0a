//! A walk returns every name of a tree once, with its metadata, also while the tree changes.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use nowait::StatxMask;
use nowait::engine::Engine;
use nowait::scan::Order;
use nowait::{ErrorKind, Walk, walk};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};

use crate::common::by_workers::{by_workers, found};
use crate::common::children::role;
use crate::common::files::scratch;
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::nobody::in_child_as_nobody;
use crate::common::open_paths::open_below;
use crate::common::wait::wait_until;
use crate::directories::{engines, fill};

/// Makes directories of many sizes, deep and empty ones, symbolic links, and files with several names.
fn plant(root: &Path) {
    for i in 0..60 {
        fill(&root.join(format!("small/{}/{i}", i % 7)), "f", i);
    }
    fill(&root.join("large"), "f", 3_000);
    fill(&root.join("large/inside"), "g", 700);
    let mut deep = root.join("deep");
    for i in 0..50 {
        deep = deep.join(format!("{i}"));
        fill(&deep, "f", 2);
    }
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("file"), "three").unwrap();
    fs::hard_link(root.join("file"), root.join("deep/again")).unwrap();
    std::os::unix::fs::symlink("../small", root.join("deep/link")).unwrap();
    std::os::unix::fs::symlink("nowhere", root.join("broken")).unwrap();
}

/// Path, inode number and number of names of everything below a directory, by the standard library.
fn expected(root: &Path) -> BTreeMap<PathBuf, (u64, u64)> {
    let (mut all, mut dirs) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let stat = entry.metadata().unwrap();
            if stat.is_dir() {
                dirs.push(entry.path());
            }
            all.insert(entry.path(), (stat.ino(), stat.nlink()));
        }
    }
    all
}

fn options(engine: &Engine) -> walk::Options {
    walk::Options::new()
        .metadata(StatxMask::BASIC_STATS)
        .engine(engine)
}

/// The same by a walk. The entry of a directory must come before the names in it.
fn walked(mut walk: Walk, root: &Path, caller: bool) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut all = BTreeMap::new();
    for found in found(&mut walk, caller) {
        let found = found.unwrap();
        let stat = found.metadata().unwrap().unwrap();
        let path = found.path();
        let parent = path.parent().unwrap();
        assert!(
            parent == root || all.contains_key(parent),
            "{} comes too early",
            path.display()
        );
        assert_eq!(
            found.depth(),
            path.components().count() - root.components().count()
        );
        let twice = all.insert(path.clone(), (stat.ino(), stat.nlink()));
        assert_eq!(twice, None, "{} came twice", path.display());
    }
    let dirs = all
        .keys()
        .filter(|path| path.symlink_metadata().unwrap().is_dir())
        .count();
    assert_eq!(walk.stats().directories, 1 + dirs as u64);
    assert_eq!(walk.stats().scan.listed, all.len() as u64);
    all
}

#[test]
fn every_name_of_a_tree_comes_once() {
    for filesystem in Filesystem::ALL {
        let mount = mounted!(filesystem);
        let root = mount.path().join("tree");
        fs::create_dir(&root).unwrap();
        plant(&root);
        let all = expected(&root);
        for engine in engines() {
            let _limit = Limit::new(format!("{filesystem} {}", engine.backend()));
            for (options, what) in [
                (options(&engine), "plain"),
                (options(&engine).order(Order::Name), "by name"),
                (
                    options(&engine).max_buffered(50, 1 << 20),
                    "through a small window",
                ),
                (
                    options(&engine).descriptors(2).workers(1),
                    "with two descriptors and a worker",
                ),
            ] {
                for caller in [true, false] {
                    let seen = walked(options.blocking_open(&root).unwrap(), &root, caller);
                    assert!(
                        seen == all,
                        "{filesystem}, {what}: {} of {}",
                        seen.len(),
                        all.len()
                    );
                }
            }
            let seen = pollster::block_on(async {
                let mut walk = options(&engine).open(&root).await.unwrap();
                let mut seen = HashSet::new();
                while let Some(found) = walk.batch().await {
                    let found = found.unwrap();
                    (0..).map_while(|at| found.get(at)).for_each(|entry| {
                        assert!(
                            seen.insert(entry.path()),
                            "{} came twice",
                            entry.path().display()
                        );
                    });
                }
                seen
            });
            assert!(seen.iter().all(|path| all.contains_key(path)) && seen.len() == all.len());
        }
    }
}

#[test]
fn orders_hold_within_each_directory() {
    let root = scratch();
    plant(root.path());
    for engine in engines() {
        let walk = options(&engine)
            .order(Order::Name)
            .blocking_open(root.path())
            .unwrap();
        let mut last = BTreeMap::new();
        for found in walk.map(Result::unwrap) {
            let name = found.file_name().to_owned();
            if let Some(before) = last.insert(found.dir().path(), name.clone()) {
                assert!(
                    before < name,
                    "{} after {}",
                    name.display(),
                    before.display()
                );
            }
        }
    }
}

#[test]
fn depth_is_limited() {
    let root = scratch();
    plant(root.path());
    for depth in [1, 2, 4, 21] {
        let walk = walk::Options::new()
            .max_depth(depth)
            .blocking_open(root.path())
            .unwrap();
        let deepest = walk.map(|found| found.unwrap().depth()).max();
        assert_eq!(deepest, Some(depth));
    }
}

/// A walk that has opened enough directories goes on if it may open more.
#[test]
fn the_number_of_directories_is_limited() {
    let root = scratch();
    for path in ["a/b/c", "a/d", "e", "f/g"] {
        std::fs::create_dir_all(root.path().join(path)).unwrap();
        std::fs::write(root.path().join(path).join("file"), "").unwrap();
    }
    for engine in engines() {
        for blocking in [true, false] {
            let mut walk = options(&engine).blocking_open(root.path()).unwrap();
            let mut entries = HashSet::new();
            for most in 1..10 {
                walk.set_max_directories(most);
                loop {
                    let batch = match blocking {
                        true => walk.blocking_batch(),
                        false => pollster::block_on(walk.batch()),
                    };
                    let Some(batch) = batch else { break };
                    for entry in batch.unwrap().iter() {
                        assert!(
                            entries.insert(entry.path()),
                            "{} twice",
                            entry.path().display()
                        );
                    }
                }
                let stats = walk.stats();
                assert_eq!(stats.directories, most.min(8));
                assert_eq!(stats.waiting > 0, most < 8, "{stats:?}");
            }
            assert_eq!(entries.len(), 7 + 4);
        }
    }
}

#[test]
fn a_filter_keeps_directories_from_being_entered() {
    let root = scratch();
    for path in ["a/keep/x", "a/skip/x", "skip/deep", "b"] {
        std::fs::create_dir_all(root.path().join(path)).unwrap();
        std::fs::write(root.path().join(path).join("file"), "").unwrap();
    }
    for engine in engines() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        let walk = options(&engine)
            .filter_dirs(move |path, depth| {
                notes.lock().unwrap().push((path.to_owned(), depth));
                path.file_name().is_none_or(|name| name != "skip")
            })
            .blocking_open(root.path())
            .unwrap();
        let mut found: Vec<_> = walk
            .map(|found| found.unwrap().path())
            .map(|path| path.strip_prefix(root.path()).unwrap().to_owned())
            .collect();
        found.sort();
        let expected = [
            "a",
            "a/keep",
            "a/keep/x",
            "a/keep/x/file",
            "a/skip",
            "b",
            "b/file",
            "skip",
        ];
        assert_eq!(found, expected.map(std::path::PathBuf::from));
        let mut asked = std::mem::take(&mut *asked.lock().unwrap());
        asked.sort();
        let paths = [
            ("a", 1),
            ("a/keep", 2),
            ("a/keep/x", 3),
            ("a/skip", 2),
            ("b", 1),
            ("skip", 1),
        ];
        assert_eq!(
            asked,
            paths.map(|(path, depth)| (root.path().join(path), depth))
        );
    }
}

#[test]
fn a_filter_that_panics_ends_nothing_but_its_directory() {
    let root = scratch();
    plant(root.path());
    std::fs::create_dir(root.path().join("bomb")).unwrap();
    for engine in engines() {
        let walk = options(&engine)
            .filter_dirs(|path, _| {
                if path.ends_with("bomb") {
                    std::panic::resume_unwind(Box::new("the filter's own"));
                }
                true
            })
            .blocking_open(root.path())
            .unwrap();
        let (found, errors): (Vec<_>, Vec<_>) = walk.partition(Result::is_ok);
        assert!(found.len() > 20);
        let errors: Vec<_> = errors.into_iter().map(Result::unwrap_err).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].path(), Some(root.path().join("bomb").as_path()));
        assert_eq!(errors[0].errno(), Some(libc::EIO));
    }
}

#[test]
fn a_path_may_be_longer_than_a_call_takes() {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let root = scratch();
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(rustix::fs::CWD, root.path(), flags, Mode::empty()).unwrap();
    let name = "d".repeat(200);
    for _ in 0..60 {
        mkdirat(&at, &name, 0o700.into()).unwrap();
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    for engine in engines() {
        let found: Vec<_> = options(&engine)
            .blocking_open(root.path())
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(found.len(), 60);
        let longest = found
            .iter()
            .map(|found| found.path().as_os_str().len())
            .max()
            .unwrap();
        assert!(longest > 12_000);
        let following = options(&engine)
            .follow_links(true)
            .blocking_open(root.path())
            .unwrap();
        assert_eq!(following.map(Result::unwrap).count(), 60);
    }
}

#[test]
fn a_tree_that_changes_meanwhile() {
    let root = scratch();
    for i in 0..100 {
        fill(&root.path().join(format!("standing/{i}")), "f", 30);
    }
    let standing = expected(&root.path().join("standing"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !over.load(Relaxed) {
                let dir = root.path().join(format!("coming-{round}"));
                for i in 0..20 {
                    fill(&dir.join(format!("{i}")), "f", 3);
                }
                let gone = root.path().join(format!("going-{round}"));
                fs::rename(&dir, &gone).unwrap();
                fs::remove_dir_all(gone).unwrap();
                round += 1;
            }
        });
        let mut vanished = 0;
        for round in 0..60 {
            let engines = engines();
            let mut walk = options(&engines[round % engines.len()])
                .blocking_open(root.path())
                .unwrap();
            let mut seen = HashSet::new();
            for found in by_workers(&mut walk) {
                // A directory that vanishes is not an error.
                let found = found.map(|found| found.path());
                match found {
                    Ok(path) => assert!(seen.insert(path.clone()), "{} twice", path.display()),
                    Err(error) => {
                        over.store(true, Relaxed);
                        panic!("{error}");
                    }
                }
            }
            vanished += walk.stats().vanished;
            let missing = standing.keys().filter(|path| !seen.contains(*path)).count();
            if missing > 0 {
                over.store(true, Relaxed);
            }
            assert_eq!(missing, 0, "round {round}");
        }
        over.store(true, Relaxed);
        eprintln!("{vanished} directories vanished");
    });
}

#[test]
fn a_directory_that_cant_be_read_is_an_error_among_the_rest() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        for i in 0..20 {
            fill(&at.join(format!("d{i}")), "f", 20);
        }
    })
    .unwrap();
    let dir = cold.path().join("d7");
    let bad = cold.directory_block(&dir, 0).unwrap();
    cold.remount().unwrap();
    let fault = disk.inject(Fault::eio(bad).reads_only());
    let walk = walk::Options::new().blocking_open(cold.path()).unwrap();
    let (found, errors): (Vec<_>, Vec<_>) = walk.partition(Result::is_ok);
    disk.release(fault);
    // 20 directories, lost+found, and what is in 19 of them.
    assert_eq!(found.len(), 21 + 19 * 20);
    assert_eq!(errors.len(), 1, "{errors:?}");
    let error = errors.into_iter().next().unwrap().unwrap_err();
    assert_eq!(
        (error.path(), error.errno()),
        (Some(dir.as_path()), Some(libc::EIO))
    );
}

#[test]
fn directories_that_become_unreadable_midway_are_errors_among_the_rest() {
    if role().is_none() {
        in_child_as_nobody("nobody", |_| ());
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = dir.path();
    let closing: Vec<_> = (0..40).map(|i| root.join(format!("d{i}"))).collect();
    let staying: Vec<_> = (0..20).map(|i| root.join(format!("e/{i}"))).collect();
    for dir in closing.iter().chain(&staying) {
        fill(dir, "f", 300);
    }
    let permit = |mode: u32| {
        for dir in &closing {
            rustix::fs::chmod(dir, mode.into()).unwrap();
        }
    };
    for engine in engines() {
        // The window keeps the walk from reading all of them before they become unreadable.
        let options = options(&engine).max_buffered(1_000, 1 << 20);
        let mut walk = options.blocking_open(root).unwrap();
        let first = walk.blocking_batch().unwrap().unwrap();
        assert_eq!(&*first.dir().path(), root);
        permit(0o000);
        let (mut names, mut errors) = (BTreeMap::new(), HashSet::new());
        for found in walk {
            match found {
                Ok(found) => {
                    let parent = found.dir().path().to_path_buf();
                    // A directory that was open is listed to its end, but metadata is denied.
                    let answer = found.metadata().unwrap();
                    let denied = answer
                        .as_ref()
                        .is_err_and(|e| e.errno() == Some(libc::EACCES));
                    assert!(answer.is_ok() || (denied && closing.contains(&parent)));
                    *names.entry(parent).or_insert(0) += 1;
                }
                Err(error) => {
                    assert_eq!(error.errno(), Some(libc::EACCES), "{error}");
                    assert!(errors.insert(error.path().unwrap().to_owned()), "{error}");
                }
            }
        }
        permit(0o700);
        assert!(!errors.is_empty());
        for dir in &closing {
            let listed = names.get(dir).copied();
            let expected = if errors.contains(dir) {
                None
            } else {
                Some(300)
            };
            assert_eq!(listed, expected, "{}", dir.display());
        }
        assert!(staying.iter().all(|dir| names.get(dir) == Some(&300)));
        assert!(errors.iter().all(|path| closing.contains(path)));
    }
}

#[test]
fn a_cancelled_or_dropped_walk_leaves_nothing_open() {
    let root = scratch();
    plant(root.path());
    for engine in engines() {
        let mut walk = options(&engine)
            .max_buffered(50, 1 << 20)
            .blocking_open(root.path())
            .unwrap();
        walk.blocking_batch().unwrap().unwrap();
        drop(walk);
        wait_until("descriptors stay open", || {
            open_below(root.path()).is_empty()
        });

        let mut walk = options(&engine)
            .max_buffered(50, 1 << 20)
            .blocking_open(root.path())
            .unwrap();
        walk.blocking_batch().unwrap().unwrap();
        walk.canceller().cancel();
        assert_eq!(
            walk.blocking_batch().unwrap().unwrap_err().kind(),
            ErrorKind::Cancelled
        );
        assert!(walk.next().is_none());
        wait_until("descriptors stay open", || {
            open_below(root.path()).is_empty()
        });
    }
}

#[test]
fn a_stalled_device_does_not_hold_who_has_cancelled() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fill(&at.join("a/b/c"), "f", 100)
    })
    .unwrap();
    for engine in engines() {
        let fault = disk.inject(Fault::stall(0..disk.size()).reads_only());
        let mut walk = options(&engine).blocking_open(cold.path()).unwrap();
        let canceller = walk.canceller();
        let waiting = std::thread::spawn(move || {
            while let Some(found) = pollster::block_on(walk.batch()) {
                if let Err(error) = found {
                    assert_eq!(error.kind(), ErrorKind::Cancelled);
                    return;
                }
            }
            panic!("an ordinary end");
        });
        wait_until("a read waits for the device", || disk.stalled() > 0);
        canceller.cancel();
        let _limit = Limit::new("joining".into());
        waiting.join().unwrap();
        assert!(disk.stalled() > 0);
        disk.release(fault);
    }
}
