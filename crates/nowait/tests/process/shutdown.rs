//! The filesystem is shut down, or its device begins to fail, while files are open and directories are read. Each call
//! fails or brings the bytes of the file. No signal is raised, and nothing hangs.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use nowait::engine::{Engine, Options};
use nowait::{Mode, OpenOptions, Scan, Walk, residency};
use slowdisk::{Fault, Filesystem, Log, SlowDisk, TestMount};

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::files::{pattern, patterned};
use crate::common::limit::Limit;

/// Longer than the kernel reads ahead.
const LEN: usize = 4 << 20;
/// The names in a directory, more than one batch.
const NAMES: usize = 3_000;
const SMALL: usize = 50;

/// The tree that is used while the filesystem dies.
struct Tree(PathBuf);

impl Tree {
    fn new(root: &Path) -> Tree {
        patterned(root, "warm", LEN);
        patterned(root, "cold", LEN);
        for (directory, names) in [("names", NAMES), ("small", SMALL)] {
            let directory = root.join(directory);
            fs::create_dir(&directory).unwrap();
            for i in 0..names {
                let text = if names == SMALL {
                    i.to_string()
                } else {
                    String::new()
                };
                fs::write(directory.join(i.to_string()), text).unwrap();
            }
        }
        let tree = Tree(root.to_owned());
        rustix::fs::syncfs(fs::File::open(root).unwrap()).unwrap();
        evict(&tree.at("cold"));
        (0..SMALL).step_by(2).for_each(|i| evict(&tree.small(i)));
        tree
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn small(&self, i: usize) -> PathBuf {
        self.at("small").join(i.to_string())
    }
}

/// Uses each face of the library before and after `dies`.
fn use_all(engine: &Engine, tree: &Tree, dies: &dyn Fn()) {
    let mut files = Vec::new();
    for mode in [Mode::Eager, Mode::Strict] {
        for name in ["warm", "cold"] {
            let mut options = OpenOptions::new();
            options.read(true).engine(engine).cache_mode(mode);
            let file = options.blocking_open(tree.at(name)).unwrap();
            let mut buf = vec![0; 4096];
            file.blocking_read_exact_at(&mut buf[..], 0).unwrap();
            assert!(buf == pattern(0, 4096));
            files.push(file);
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).engine(engine);
    let written = options.blocking_open(tree.at("warm")).unwrap();
    let mut names = HashSet::new();
    let scanned = nowait::scan::Options::new()
        .engine(engine)
        .max_buffered(500, 1 << 20);
    let mut scan = scanned.blocking_open(tree.at("names")).unwrap();
    let mut took = |batch: nowait::Result<nowait::scan::Batch>| {
        for entry in batch.iter().flat_map(nowait::scan::Batch::iter) {
            let name = entry.file_name().to_str().unwrap().to_owned();
            assert!(name.parse::<usize>().unwrap() < NAMES);
            assert!(names.insert(name), "a name came twice");
        }
    };
    took(scan.blocking_batch().unwrap());
    let paths = || (0..SMALL).map(|i| tree.small(i));
    let reading = nowait::read_files::Options::new().engine(engine);
    let mut reads = reading.read(paths());
    let same = |file: nowait::Result<nowait::FileContents>| {
        if let Ok(file) = file {
            assert_eq!(
                file.path().file_name().unwrap().as_encoded_bytes(),
                file.bytes()
            );
        }
    };
    same(reads.next().unwrap());
    let walk = Walk::blocking_open(&tree.0).unwrap();

    dies();

    while let Some(batch) = scan.blocking_batch() {
        took(batch);
    }
    reads.for_each(same);
    reading.read(paths()).for_each(same);
    walk.for_each(drop);
    if let Ok(scan) = Scan::blocking_open(tree.at("names")) {
        scan.for_each(drop);
    }
    if let Ok(walk) = Walk::blocking_open(&tree.0) {
        walk.for_each(drop);
    }
    let mut failed = 0;
    for file in &files {
        for at in (0..LEN as u64).step_by(128 << 10) {
            let expected = pattern(at, 100_000.min(LEN - at as usize));
            let mut buf = vec![0; expected.len()];
            match file.blocking_read_at(&mut buf[..], at) {
                Ok(n) => assert!(n == expected.len() && buf == expected),
                Err(_) => failed += 1,
            }
            let read = pollster::block_on(file.read_at(buf, at));
            if let Ok(n) = read.result {
                assert!(n == expected.len() && read.buf == expected);
            }
        }
        let _ = (
            file.len(),
            file.residency().residency(0..u64::MAX),
            file.residency().is_resident(0, LEN as u64),
        );
        let _ = residency::residency(file, 0..LEN as u64);
    }
    assert!(failed > 0);
    // The page cache may take the bytes. They do not reach the device.
    let _ = pollster::block_on(written.write_at(vec![1; 10], 0));
    pollster::block_on(written.sync_all()).unwrap_err();
    #[cfg(feature = "tokio")]
    tokio_file(&tree.at("cold"), &tree.at("warm"));
}

/// Opens and reads files by [`nowait::tokio`].
#[cfg(feature = "tokio")]
fn tokio_file(cold: &Path, warm: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        for path in [cold, warm] {
            let _ = nowait::tokio::read(path).await;
            let Ok(mut file) = nowait::tokio::File::open(path).await else {
                continue;
            };
            let mut bytes = Vec::new();
            let _ = file.read_to_end(&mut bytes).await;
            // The first bytes may have been written.
            assert!(bytes.len() < 10 || bytes[10..] == pattern(0, bytes.len())[10..]);
        }
    });
}

fn each_engine(what: &str, mut test: impl FnMut(&Engine)) {
    for backend in backends() {
        let _limit = Limit::new(format!("{what}, {backend}"));
        test(&Options::new().backend(backend).build().unwrap());
    }
}

fn shut_down_in_use(filesystem: Filesystem) {
    alone(|| {
        for log in [Log::Written, Log::Lost] {
            each_engine(&format!("{filesystem:?}, {log:?}"), |engine| {
                slowdisk::require!(filesystem.available());
                let mount = TestMount::new(filesystem).unwrap();
                let tree = Tree::new(mount.path());
                use_all(engine, &tree, &|| mount.shut_down(log).unwrap());
            });
        }
    });
}

#[test]
fn ext4_is_shut_down_in_use() {
    shut_down_in_use(Filesystem::Ext4);
}

#[test]
fn xfs_is_shut_down_in_use() {
    shut_down_in_use(Filesystem::Xfs);
}

#[test]
fn a_device_fails_in_use() {
    alone(|| {
        slowdisk::require!(slowdisk::available());
        each_engine("a device", |engine| {
            const SIZE: u64 = 64 << 20;
            let disk = SlowDisk::builder().size(SIZE).build().unwrap();
            let mount = TestMount::on(&disk, Filesystem::Ext4).unwrap();
            let tree = Tree::new(mount.path());
            use_all(engine, &tree, &|| {
                disk.inject(Fault::eio(0..SIZE));
            });
        });
    });
}
