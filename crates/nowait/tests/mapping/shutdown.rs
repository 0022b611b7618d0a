//! The filesystem is shut down, or its device fails, while bytes are borrowed. Calls fail or bring the file's bytes.
//! No signal is raised, and no other memory is touched.
#![allow(unsafe_code, reason = "mmap(2) at addresses that must be in use")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nowait::{File, Mapping};
use rustix::fs::{Mode, OFlags, open};
use slowdisk::{Fault, Filesystem, Log};

use crate::common::cache::evict;
use crate::common::children::alone;
use crate::common::files::{pattern, patterned};
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::rig::{PAGE, PAGES, Rig};
use crate::{WINDOW, budget, is_free, mapped};

/// More than the kernel reads ahead.
const WINDOWS: u64 = 64;
const LEN: usize = (WINDOWS * WINDOW) as usize;

/// Another thread maps memory there if it can.
#[test]
fn a_load_that_fails_leaves_no_hole() {
    alone(|| {
        let _limit = Limit::new("a hole".into());
        let mount = mounted!(Filesystem::Ext4);
        let path = patterned(mount.path(), "file", LEN);
        evict(&path);
        let mapping = mapped(&File::blocking_open(&path).unwrap(), &budget(4));
        let held = mapping.blocking_load(0..WINDOW).unwrap();
        mount.shut_down(Log::Lost).unwrap();
        let last = (WINDOWS - 1) * WINDOW;
        let address = held.as_ptr() as usize + last as usize;
        let (found, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if is_free(address, WINDOW as usize) {
                        found.store(true, Ordering::Relaxed);
                    }
                }
            });
            // Fewer on a slow machine.
            let end = Instant::now() + Duration::from_secs(5);
            for _ in 0..20_000 {
                // ext4 refuses to map a file then, and page faults of an earlier mapping may read.
                if let Ok(bytes) = mapping.blocking_load(last..last + WINDOW) {
                    assert!(*bytes == pattern(last, WINDOW as usize));
                }
                if found.load(Ordering::Relaxed) || Instant::now() > end {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(!found.load(Ordering::Relaxed), "there was a hole");
        assert!(*held == pattern(0, WINDOW as usize));
    });
}

/// Reads all of the file in each way. A call that does not fail brings the file's bytes.
fn read_all(mapping: &Mapping) {
    for at in (0..WINDOWS).map(|window| window * WINDOW) {
        let expected = pattern(at, WINDOW as usize);
        if let Ok(bytes) = mapping.blocking_load(at..at + WINDOW) {
            assert!(*bytes == *expected);
        }
        if let Some(bytes) = mapping.get(at..at + WINDOW) {
            assert!(*bytes == *expected);
        }
        if let Ok(bytes) = pollster::block_on(mapping.load(at..at + WINDOW)) {
            assert!(*bytes == *expected);
        }
        let mut buf = vec![0; WINDOW as usize];
        if let Ok(n) = mapping.blocking_read_at(&mut buf[..], at) {
            assert!(n == expected.len() && buf == expected);
        }
        let read = pollster::block_on(mapping.read_at(buf, at));
        if let Ok(n) = read.result {
            assert!(n == expected.len() && read.buf == expected);
        }
    }
}

#[test]
fn a_filesystem_is_shut_down() {
    alone(|| {
        for (filesystem, log) in [
            (Filesystem::Ext4, Log::Written),
            (Filesystem::Ext4, Log::Lost),
            (Filesystem::Xfs, Log::Written),
            (Filesystem::Xfs, Log::Lost),
        ] {
            let _limit = Limit::new(format!("{filesystem:?}, {log:?}"));
            let mount = mounted!(filesystem);
            let path = patterned(mount.path(), "file", LEN);
            evict(&path);
            let file = File::blocking_open(&path).unwrap();
            let budget = budget(4);
            let mapping = mapped(&file, &budget);
            let held = mapping.blocking_load(WINDOW..2 * WINDOW).unwrap();
            let borrowed = mapping.get(WINDOW..WINDOW + 100).unwrap();
            evict(&path);
            mount.shut_down(log).unwrap();
            let as_before = || {
                assert!(*held == pattern(WINDOW, WINDOW as usize));
                assert_eq!(*borrowed, pattern(WINDOW, 100));
            };
            as_before();
            read_all(&mapping);
            as_before();
            // Another mapping. None, or one whose loads fail.
            if let Ok(other) = Mapping::within(&file, &budget) {
                read_all(&other);
            }
            // It fails, and may break the lease all the same. It would wait for the lease if the file cannot be copied.
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK;
            open(&path, flags, Mode::empty()).unwrap_err();
            std::thread::sleep(Duration::from_millis(100));
            as_before();
            read_all(&mapping);
            as_before();
            drop((held, borrowed));
            drop((mapping, file));
        }
    });
}

#[test]
fn a_device_begins_to_fail() {
    alone(|| {
        slowdisk::require!(slowdisk::available());
        let _limit = Limit::new("EIO".into());
        let rig = Rig::new();
        let path = rig.cold("file");
        let len = PAGES * PAGE as u64;
        let mapping = mapped(&File::blocking_open(&path).unwrap(), &budget(4));
        let held = mapping.blocking_load(0..WINDOW).unwrap();
        evict(&path);
        let faults = rig.fault(&path, Fault::eio);
        for at in (WINDOW..len).step_by(WINDOW as usize) {
            mapping.blocking_load(at..at + WINDOW).unwrap_err();
            assert!(mapping.get(at..at + 1).is_none());
            let error = mapping.blocking_read_at(&mut [0; 100][..], at);
            assert_eq!(error.unwrap_err().errno(), Some(libc::EIO));
        }
        assert!(*held == pattern(0, WINDOW as usize));
        // The writer waits for the copy, which the page cache has.
        drop(std::fs::File::create(&path).unwrap());
        assert!(*held == pattern(0, WINDOW as usize));
        rig.release(faults);
    });
}
