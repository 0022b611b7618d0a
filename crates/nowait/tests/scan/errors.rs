//! A failure is reported as an error of the entry, or of the part of the directory, that it concerns. All
//! other entries are returned.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use nowait::scan::{Options, Order};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount};
use test_support::{Excuse, repeat};

use crate::common::children::role;
use crate::common::nobody::in_child_as_nobody;
use crate::directories::{engines, fill, with_metadata};

#[test]
fn an_unreadable_inode_is_its_entries_error() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fill(&at.join("d"), "f", 3_000)
    })
    .unwrap();
    let dir = cold.path().join("d");
    let bad = cold.inode(dir.join("f1500")).unwrap();
    for engine in engines() {
        for order in [Order::Unordered, Order::Inode, Order::Name] {
            cold.remount().unwrap();
            let fault = disk.inject(Fault::eio(bad.clone()).reads_only());
            let options = with_metadata().engine(&engine).order(order);
            let mut scan = options.blocking_open(&dir).unwrap();
            let (mut whole, mut failed) = (0, HashSet::new());
            while let Some(batch) = scan.blocking_batch() {
                for entry in batch.unwrap().iter() {
                    match entry.metadata().unwrap() {
                        Ok(_) => whole += 1,
                        Err(error) => {
                            assert_eq!(error.errno(), Some(libc::EIO), "{error}");
                            assert_eq!(error.path(), Some(dir.join(entry.file_name()).as_path()));
                            failed.insert(entry.file_name().to_owned());
                        }
                    }
                }
            }
            disk.release(fault);
            assert_eq!(whole + failed.len(), 3_000, "{order:?}");
            assert!(failed.contains(std::ffi::OsStr::new("f1500")), "{failed:?}");
            assert!(failed.len() <= 16, "an inode block has 16: {failed:?}");
            assert_eq!(scan.stats().failed, failed.len() as u64);
        }
    }
}

#[test]
fn an_unreadable_part_of_a_directory_is_an_error_among_the_rest() {
    slowdisk::require!(slowdisk::available());
    let disk = SlowDisk::builder().size(1 << 30).build().unwrap();
    let cold = TestMount::filled(&disk, Filesystem::Ext4, |at| {
        fill(&at.join("d"), "f", 40_000)
    })
    .unwrap();
    let dir = cold.path().join("d");
    // A leaf block in the middle.
    let bad = cold.directory_block(&dir, 100).unwrap();
    // One worker alone, and several that list in parts.
    for workers in [1, 16] {
        let options = Options::new().workers(workers);
        let listed = |cold: &TestMount| {
            cold.remount().unwrap();
            let fault = disk.inject(Fault::eio(bad.clone()).reads_only());
            let (mut names, mut errors) = (HashSet::new(), Vec::new());
            let mut scan = options.blocking_open(&dir).unwrap();
            while let Some(batch) = scan.blocking_batch() {
                match batch {
                    Ok(batch) => names.extend(batch.iter().map(|e| e.file_name().to_owned())),
                    Err(error) => errors.push(error),
                }
            }
            disk.release(fault);
            eprintln!("{workers} workers: {} names, {errors:?}", names.len());
            assert!(!errors.is_empty(), "{workers} workers");
            assert!(names.len() < 40_000, "{workers} workers");
            for error in &errors {
                assert_eq!(error.path(), Some(dir.as_path()));
                assert!(error.errno().is_some(), "{error}");
            }
            names.len()
        };
        // One part is lost from there on, the others are not. On a busy machine the first thread may
        // list half of the directory before a worker gets a processor and takes a part.
        let busy = Excuse::Busy(Duration::from_millis(1));
        repeat("parts", &[busy], || match listed(&cold) {
            names if workers == 1 || names > 30_000 => Ok(()),
            names => Err(names),
        });
        let error = {
            cold.remount().unwrap();
            let fault = disk.inject(Fault::eio(bad.clone()).reads_only());
            let scan = options.blocking_open(&dir).unwrap();
            let error = scan.filter_map(Result::err).next().unwrap();
            disk.release(fault);
            error
        };
        assert_eq!(error.operation(), "getdents64");
    }
}

#[test]
fn a_directory_that_is_removed_midway_ends() {
    for filesystem in [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
    ] {
        slowdisk::require!(filesystem.available());
        let mount = slowdisk::TestMount::new(filesystem).unwrap();
        let dir = mount.path().join("d");
        fill(&dir, "f", 5_000);
        let mut scan = with_metadata()
            .max_buffered(600, 1 << 20)
            .blocking_open(&dir)
            .unwrap();
        let first = scan.blocking_batch().unwrap().unwrap();
        assert!(first.iter().all(|e| e.metadata().unwrap().is_ok()));
        fs::remove_dir_all(&dir).unwrap();
        let mut rest = 0;
        while let Some(batch) = scan.blocking_batch() {
            for entry in batch.unwrap().iter() {
                rest += 1;
                if let Err(error) = entry.metadata().unwrap() {
                    assert_eq!(error.errno(), Some(libc::ENOENT));
                }
            }
        }
        assert!(first.len() + rest < 5_000, "{filesystem}: {rest}");
    }
}

#[test]
fn a_directory_that_becomes_unreadable_midway() {
    if role().is_none() {
        in_child_as_nobody("nobody", |_| ());
        return;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let inside = dir.path().join("d");
    fill(&inside, "f", 20_000);
    let mut scan = with_metadata()
        .max_buffered(600, 1 << 20)
        .blocking_open(&inside)
        .unwrap();
    let (mut fine, mut denied) = (scan.blocking_batch().unwrap().unwrap().len(), 0);
    rustix::fs::chmod(&inside, 0o000.into()).unwrap();
    assert_eq!(
        nowait::Scan::blocking_open(&inside).unwrap_err().errno(),
        Some(libc::EACCES)
    );
    while let Some(batch) = scan.blocking_batch() {
        for entry in batch.unwrap().iter() {
            match entry.metadata().unwrap() {
                Ok(_) => fine += 1,
                Err(error) => {
                    assert_eq!(error.errno(), Some(libc::EACCES));
                    denied += 1;
                }
            }
        }
    }
    rustix::fs::chmod(&inside, 0o700.into()).unwrap();
    // The open descriptor still lists names. New parts can't be opened, and metadata is denied.
    assert_eq!(fine + denied, 20_000);
    assert!(denied > 0);
}
