//! The bytes are those of `std::fs::read`, on every filesystem, cached or not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nowait::read_files::Options;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use slowdisk::{Filesystem, TestMount};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::files::{pattern, scratch};
use crate::common::limit::Limit;
use crate::{FACES, Face, by_path, engines, results};

/// The state of the page cache before the files are read.
#[derive(Clone, Copy, Debug)]
enum Cache {
    Cold,
    Warm,
    /// Every second file is cached.
    Half,
}

fn prepare(cache: Cache, paths: &[PathBuf]) {
    for (i, path) in paths.iter().enumerate() {
        let warm = match cache {
            Cache::Cold => false,
            Cache::Warm => true,
            Cache::Half => i % 2 == 0,
        };
        if warm {
            fs::read(path).unwrap();
        } else {
            evict(path);
        }
    }
}

fn expected(paths: &[PathBuf]) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: &PathBuf| (path.clone(), fs::read(path).unwrap());
    paths.iter().map(read).collect()
}

/// Makes files of these lengths, in two directories.
fn make(dir: &Path, lengths: &[usize]) {
    for (i, len) in lengths.iter().enumerate() {
        let dir = dir.join(format!("{}", i % 2));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), pattern(i as u64 * 77, *len)).unwrap();
    }
}

fn paths(dir: &Path, lengths: &[usize]) -> Vec<PathBuf> {
    let path = |i| dir.join(format!("{}/f{i}", i % 2));
    (0..lengths.len()).map(path).collect()
}

fn mounted(filesystem: Filesystem, fill: impl Fn(&Path)) -> TestMount {
    if filesystem == Filesystem::Overlay {
        let base = TestMount::new(Filesystem::Ext4).unwrap();
        let lower = base.path().join("lower");
        fs::create_dir(&lower).unwrap();
        fill(&lower);
        TestMount::overlay(base).unwrap()
    } else {
        let mount = TestMount::new(filesystem).unwrap();
        fill(mount.path());
        mount
    }
}

/// Files of the sizes that this operation reads: empty ones, around a page, and larger than the window.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![
        Just(0usize),
        1..100usize,
        4090..4100usize,
        1..20_000usize,
        100_000..300_000usize,
    ];
    prop::collection::vec(len, 1..120)
}

fn equal_to_std(filesystem: Filesystem) {
    slowdisk::require!(filesystem.available());
    // Files in memory stay there.
    let caches: &[Cache] = match filesystem {
        Filesystem::Tmpfs => &[Cache::Warm],
        _ => &[Cache::Cold, Cache::Warm, Cache::Half],
    };
    let engines = engines();
    let mut runner = TestRunner::new(Config {
        cases: 4,
        failure_persistence: None,
        ..Config::default()
    });
    let windows = (1..200usize, prop_oneof![1..1000u64, 1..1_000_000u64]);
    let all = (lengths(), windows, any::<bool>());
    let run = runner.run(&all, |(lengths, (files, bytes), in_order)| {
        let mount = mounted(filesystem, |dir| make(dir, &lengths));
        mount.sync().unwrap();
        let paths = paths(mount.path(), &lengths);
        let expected = expected(&paths);
        for engine in &engines {
            for face in FACES {
                for cache in caches {
                    let _limit = Limit::new(format!("{} {face:?} {cache:?}", engine.backend()));
                    prepare(*cache, &paths);
                    let options = Options::new().max_buffered(files, bytes).in_order(in_order);
                    let read = results(&options.engine(engine), face, &paths);
                    if in_order {
                        let order = read.iter().map(|file| file.as_ref().unwrap().path());
                        prop_assert!(order.eq(paths.iter().map(PathBuf::as_path)));
                    }
                    prop_assert!(by_path(read) == expected, "{face:?} {cache:?}");
                }
            }
        }
        Ok(())
    });
    run.unwrap();
}

#[test]
fn ext4() {
    equal_to_std(Filesystem::Ext4);
}

#[test]
fn xfs() {
    equal_to_std(Filesystem::Xfs);
}

#[test]
fn btrfs() {
    equal_to_std(Filesystem::Btrfs);
}

#[test]
fn tmpfs() {
    equal_to_std(Filesystem::Tmpfs);
}

#[test]
fn overlayfs() {
    equal_to_std(Filesystem::Overlay);
}

#[test]
fn a_hundred_thousand_tiny_files() {
    const FILES: usize = 100_000;
    let dir = scratch();
    for i in 0..100 {
        fs::create_dir(dir.path().join(format!("{i}"))).unwrap();
    }
    let path = |i: usize| dir.path().join(format!("{}/{i}", i % 100));
    for i in 0..FILES {
        fs::write(path(i), i.to_string()).unwrap();
    }
    for engine in engines() {
        for face in [Face::Workers, Face::Future] {
            let _limit = Limit::new(format!("{} {face:?}", engine.backend()));
            let mut seen = vec![false; FILES];
            for file in results(&Options::new().engine(&engine), face, (0..FILES).map(path)) {
                let file = file.unwrap();
                let number: usize = std::str::from_utf8(file.bytes()).unwrap().parse().unwrap();
                assert_eq!(file.path(), path(number));
                assert_eq!(file.metadata().len(), file.bytes().len() as u64);
                assert!(!std::mem::replace(&mut seen[number], true));
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}

#[test]
fn cached_files_come_from_the_page_cache() {
    slowdisk::require!(Filesystem::Ext4.available());
    let mount = TestMount::new(Filesystem::Ext4).unwrap();
    let lengths = [5000; 100];
    make(mount.path(), &lengths);
    let paths = paths(mount.path(), &lengths);
    for engine in engines() {
        prepare(Cache::Warm, &paths);
        let options = Options::new().engine(&engine);
        // The first reads tell the library which filesystem it is.
        results(&options, FACES[0], &paths[..1]);
        let mut files = options.read(&paths);
        assert!(files.by_ref().all(|file| file.unwrap().is_cached()));
        assert_eq!(files.stats().cached, 100);
        prepare(Cache::Cold, &paths);
        let mut files = options.read(&paths);
        assert!(files.by_ref().all(|file| file.is_ok()));
        assert!(files.stats().cached < 100, "{:?}", files.stats());
    }
}

/// Their size is 0, or a page, and says nothing about their contents.
#[test]
fn files_of_the_kernel_are_read_to_their_end() {
    let paths = [
        "/proc/version",
        "/proc/kallsyms",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ];
    let paths: Vec<&str> = paths
        .into_iter()
        .filter(|p| Path::new(p).exists())
        .collect();
    assert!(paths.len() > 1);
    for face in FACES {
        let read = by_path(results(&Options::new(), face, &paths));
        assert_eq!(read.len(), paths.len());
        for (path, bytes) in read {
            assert!(bytes == fs::read(&path).unwrap(), "{}", path.display());
        }
        // With a small window they need several attempts.
        let small = results(&Options::new().max_buffered(1, 10), face, &paths);
        assert_eq!(by_path(small).len(), paths.len());
    }
}

/// The file is read until its end at some moment, and all files come.
#[test]
fn a_file_that_grows_and_shrinks_meanwhile_is_a_prefix() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = scratch();
    let path = dir.path().join("changes");
    let whole = pattern(0, 300_000);
    fs::write(&path, &whole).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options().write(true).open(&path).unwrap();
            for i in (0..).take_while(|_| !over.load(Ordering::Relaxed)) {
                use std::os::unix::fs::FileExt;
                let len = [10, 300_000, 5_000, 90_000][i % 4];
                file.set_len(len as u64).unwrap();
                file.write_all_at(&whole[..len], 0).unwrap();
            }
        });
        for backend in backends() {
            let engine = nowait::Engine::options().backend(backend).build().unwrap();
            for face in FACES {
                let _limit = Limit::new(format!("{backend} {face:?}"));
                for bytes in [1000, 1 << 20] {
                    let options = Options::new().max_buffered(16, bytes).engine(&engine);
                    let read = results(&options, face, vec![&path; 200]);
                    assert_eq!(read.len(), 200);
                    for file in read {
                        let file = file.unwrap();
                        // Bytes that are not written yet are 0.
                        let same = |(at, byte): (usize, &u8)| *byte == whole[at] || *byte == 0;
                        assert!(file.bytes().len() <= whole.len());
                        assert!(file.bytes().iter().enumerate().all(same));
                    }
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
