//! Forks, limits and sandboxes, in child processes.
#![allow(
    unsafe_code,
    reason = "setrlimit(2) and chown(2) of the test's own files"
)]

use std::fs::OpenOptions;
use std::os::unix::fs::chown;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use nowait::mapping::{Budget, BudgetOptions, Unavailable};
use nowait::{ErrorKind, File, Mapping};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slowdisk::Filesystem;

use crate::common::children::{alone, in_child, role};
use crate::common::drop_here::drop_here;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::forked::forked;
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::nobody::{NOBODY, in_child_as_nobody};
use crate::common::sandbox::{NUMBER, deny, filter, load, refuse, sandboxed, unless};
use crate::common::wait::{LONG, wait_until};
use crate::{WINDOW, budget, is_free, mapped};

const MIB: u64 = 1 << 20;

fn limit(resource: Resource, to: u64) {
    let maximum = getrlimit(resource).maximum;
    let current = Some(to);
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

fn mapping(path: &Path, budget: &Budget) -> Mapping {
    mapped(&File::blocking_open(path).unwrap(), budget)
}

fn truncate(path: &Path) {
    drop(
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)
            .unwrap(),
    );
}

#[test]
fn a_forked_child_gets_nothing() {
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 200_000);
        let budget = budget(4);
        let mapping = mapping(&path, &budget);
        let held = mapping.blocking_load(0..10).unwrap();
        let borrowed = mapping.get(5..9).unwrap();
        forked("a mapping", || {
            assert!(held.is_empty() && borrowed.is_empty());
            assert!(mapping.get(0..10).is_none() && mapping.get_send(0..10).is_none());
            assert_eq!(mapping.why(), Some(Unavailable::Forked));
            assert_eq!(mapping.stats(), Default::default());
            assert_eq!(budget.locked(), 0);
            let error = mapping.blocking_load(0..10).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forked);
            let error = pollster::block_on(mapping.load(0..10)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forked);
            mapping.prefetch(0..10);
            let mut buf = [0; 10];
            assert_eq!(mapping.blocking_read_at(&mut buf[..], 50).unwrap(), 10);
            assert_eq!(buf[..], pattern(50, 10));
            let error = Mapping::within(mapping.file(), &budget).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Forked);
            // A mapping of the child's own.
            let own = BudgetOptions::new().build().unwrap();
            let own = Mapping::within(&File::blocking_open(&path).unwrap(), &own).unwrap();
            assert_eq!(*own.blocking_load(0..10).unwrap(), pattern(0, 10));
            // SAFETY: the child ends without dropping its parent's mapping.
            drop(unsafe { std::ptr::read(&raw const mapping) });
        });
        assert_eq!((&*held, &*borrowed), (&*pattern(0, 10), &*pattern(5, 4)));
        // The child did not give back the lease of its parent.
        assert_eq!(mapping.why(), None);
        assert_eq!(*mapping.blocking_load(0..9).unwrap(), pattern(0, 9));
        truncate(&path);
        assert_eq!(*held, pattern(0, 10));
        drop((held, borrowed));
        wait_until("the copy is freed", || budget.locked() == 0);
    });
}

#[test]
fn borrows_stay_empty_in_a_child_whatever_it_does() {
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 200_000);
        let budget = budget(4);
        let mapping = std::sync::Arc::new(mapping(&path, &budget));
        drop(mapping.blocking_load(0..200_000).unwrap());
        // In one window and in several, two of each kind.
        let ranges = [0..4000, 5..60_000, 9..200_000, 100..150_000];
        let here = ranges.clone().map(|range| mapping.get(range).unwrap());
        let send = ranges.clone().map(|range| mapping.get_send(range).unwrap());
        let owned = ranges
            .clone()
            .map(|range| mapping.get_owned(range).unwrap());
        let all_empty = || {
            here.iter().all(|bytes| bytes.is_empty())
                && send.iter().all(|bytes| bytes.is_empty())
                && owned.iter().all(|bytes| bytes.is_empty())
        };
        forked("borrows", || {
            forked("a child of the child", || {
                here.iter().for_each(drop_here);
                send.iter().for_each(drop_here);
                assert!(all_empty() && mapping.get(0..10).is_none());
            });
            for i in 0..ranges.len() {
                drop_here(&here[i]);
                assert!(all_empty(), "after a Resident");
                drop_here(&send[i]);
                assert!(all_empty(), "after a SendResident");
                // Also the reference to the mapping.
                drop_here(&owned[i]);
                assert!(all_empty(), "after an OwnedResident");
            }
            // Another thread of the child, which has no counts.
            std::thread::scope(|s| {
                s.spawn(|| {
                    assert!(mapping.get(0..10).is_none() && mapping.get_owned(0..10).is_none());
                    assert!(send.iter().all(|bytes| bytes.is_empty()));
                });
            });
            assert!(mapping.get(0..10).is_none() && mapping.get_send(0..10).is_none());
            // The memory has other bytes now. The parent's thread gives the lease back meanwhile.
            truncate(&path);
            assert!(all_empty(), "after a truncation");
            // The last reference to the mapping.
            drop_here(&mapping);
            drop_here(&budget);
        });
        for (range, i) in ranges.into_iter().zip(0..) {
            let expected = pattern(range.start, (range.end - range.start) as usize);
            assert!(*here[i] == *expected && *send[i] == *expected && *owned[i] == *expected);
        }
        drop((here, send, owned));
        wait_until("the copies are freed", || budget.locked() == 0);
    });
}

#[test]
fn an_unprivileged_process_has_four_windows() {
    match role() {
        Some(path) => four_windows(Path::new(&path)),
        None => {
            let mount = mounted!(Filesystem::Ext4);
            let path = patterned(mount.path(), "file", 16 << 20);
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            in_child_as_nobody(path.to_str().unwrap(), |_| {});
        }
    }
}

fn four_windows(path: &Path) {
    const TWO: u64 = 2 * MIB;
    limit(Resource::Memlock, 8 * MIB);
    let budget = Budget::process().unwrap();
    assert_eq!(budget.limit(), 8 * MIB);
    let mapping = mapping(path, &budget);
    assert_eq!(mapping.why(), None);
    let load = |window: u64| mapping.blocking_load(window * TWO..(window + 1) * TWO);
    for window in 0..8 {
        let bytes = load(window).unwrap();
        assert!(*bytes == pattern(window * TWO, TWO as usize));
    }
    let resident: Vec<u64> = (0..8)
        .filter(|w| mapping.get(w * TWO..w * TWO + 1).is_some())
        .collect();
    assert_eq!(resident, [4, 5, 6, 7]);
    assert_eq!((budget.locked(), mapping.stats().evicted), (8 * MIB, 4));
    let four: Vec<_> = (4..8).map(|window| load(window).unwrap()).collect();
    assert_eq!(load(0).unwrap_err().errno(), Some(libc::ENOMEM));
    drop(four);
    // The limit is lower than the budget.
    limit(Resource::Memlock, 4 * MIB);
    assert!(*load(1).unwrap() == pattern(TWO, TWO as usize));
    let resident = (0..8).filter(|w| mapping.get(w * TWO..w * TWO + 1).is_some());
    assert_eq!(resident.count(), 2);
    limit(Resource::Memlock, 0);
    assert_eq!(BudgetOptions::new().build().unwrap().limit(), 0);
    assert_eq!(load(2).unwrap_err().errno(), Some(libc::ENOMEM));
    let mut buf = [0; 100];
    assert_eq!(
        mapping.blocking_read_at(&mut buf[..], 9 * MIB).unwrap(),
        100
    );
    assert_eq!(buf[..], pattern(9 * MIB, 100));
}

#[test]
fn a_lease_is_given_back_if_no_signal_can_be_queued() {
    alone(|| {
        let _limit = Limit::new("SIGIO".into());
        limit(Resource::Sigpending, 0);
        let dir = scratch();
        let budget = budget(4);
        for name in ["one", "two"] {
            let path = patterned(dir.path(), name, 200_000);
            let mapping = mapping(&path, &budget);
            let held = mapping.blocking_load(0..100_000).unwrap();
            truncate(&path);
            assert!(*held == pattern(0, 100_000));
            assert_eq!(mapping.why(), Some(Unavailable::LeaseBroken));
        }
    });
}

/// A limit of private memory that leaves no room for a copy of 16 MiB.
fn little_more() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let data = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib: u64 = data.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    (kib << 10) + 8 * MIB
}

#[test]
fn without_memory_for_copies_the_file_changes_later() {
    alone(|| {
        let _limit = Limit::new("RLIMIT_DATA".into());
        let dir = scratch();
        let path = patterned(dir.path(), "file", 16 << 20);
        let budget = BudgetOptions::new()
            .window(16 << 20)
            .limit(16 << 20)
            .build()
            .unwrap();
        let mapping = mapping(&path, &budget);
        let held = mapping.blocking_load(0..1000).unwrap();
        let (start, truncated) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                wait_until("the limit is set", || start.load(Ordering::Acquire));
                truncate(&path);
                truncated.store(true, Ordering::Release);
            });
            limit(Resource::Data, little_more());
            start.store(true, Ordering::Release);
            wait_until("the lease is being broken", || mapping.why().is_some());
            std::thread::sleep(Duration::from_millis(100));
            assert!(!truncated.load(Ordering::Acquire));
            let as_before = *held == *pattern(0, 1000);
            limit(Resource::Data, u64::MAX >> 1);
            assert!(as_before);
            wait_until("there is memory", || truncated.load(Ordering::Acquire));
            assert_eq!(*held, pattern(0, 1000));
        });
        assert_eq!(mapping.stats().copied, 1);
        // Returned bytes need no memory.
        let path = patterned(dir.path(), "file", 16 << 20);
        drop(held);
        wait_until("the copy is freed", || budget.locked() == 0);
        let mapping = self::mapping(&path, &budget);
        let held = mapping.blocking_load(0..1000).unwrap();
        truncated.store(false, Ordering::Release);
        std::thread::scope(|s| {
            s.spawn(|| {
                wait_until("the limit is set", || !start.load(Ordering::Acquire));
                truncate(&path);
                truncated.store(true, Ordering::Release);
            });
            limit(Resource::Data, little_more());
            start.store(false, Ordering::Release);
            wait_until("the lease is being broken", || mapping.why().is_some());
            drop(held);
            let end = std::time::Instant::now() + LONG;
            while !truncated.load(Ordering::Acquire) && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            limit(Resource::Data, u64::MAX >> 1);
            assert!(truncated.load(Ordering::Acquire) && mapping.stats().copied == 0);
        });
    });
}

/// Loads, borrows and reads, as far as the sandbox allows it. Returns true if bytes were borrowed.
fn whatever_is_allowed(path: &Path) -> bool {
    let budget = budget(2);
    let mapping = mapping(path, &budget);
    let mut borrowed = false;
    for window in 0..3 {
        let at = window * WINDOW;
        if let Ok(bytes) = mapping.blocking_load(at..at + 10) {
            assert_eq!(*bytes, pattern(at, 10));
            borrowed |= mapping.get(at..at + 10).is_some();
        }
        let mut buf = [0; 10];
        assert_eq!(mapping.blocking_read_at(&mut buf[..], at).unwrap(), 10);
        assert_eq!(buf[..], pattern(at, 10));
    }
    let held = mapping.blocking_load(0..10);
    truncate(path);
    if let Ok(held) = held {
        assert_eq!(*held, pattern(0, 10));
    }
    borrowed
}

#[test]
fn a_sandbox_denies_membarrier() {
    sandboxed(|errno| {
        let dir = scratch();
        deny(&[libc::SYS_membarrier], errno);
        assert!(whatever_is_allowed(&patterned(dir.path(), "file", 200_000)));
    });
}

/// A borrower may not be counted yet: no copy is freed, and no window is evicted.
#[test]
fn a_sandbox_denies_membarrier_later() {
    sandboxed(|errno| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 200_000);
        let other = patterned(dir.path(), "other", 200_000);
        let budget = budget(2);
        let mapping = mapping(&path, &budget);
        let held = mapping.blocking_load(0..10).unwrap();
        drop(mapping.blocking_load(WINDOW..WINDOW + 10).unwrap());
        deny(&[libc::SYS_membarrier], errno);
        let full = |error: nowait::Error| assert_eq!(error.errno(), Some(libc::ENOMEM));
        full(
            mapping
                .blocking_load(2 * WINDOW..2 * WINDOW + 10)
                .unwrap_err(),
        );
        assert_eq!(
            *mapping.get(WINDOW..WINDOW + 5).unwrap(),
            pattern(WINDOW, 5)
        );
        truncate(&path);
        assert_eq!(mapping.stats().copied, 2);
        let later = self::mapping(&other, &budget);
        // Copies are looked at every 20 milliseconds, and by each load.
        std::thread::sleep(Duration::from_millis(100));
        full(later.blocking_load(0..10).unwrap_err());
        assert_eq!(budget.locked(), 2 * WINDOW);
        assert_eq!(*held, pattern(0, 10));
        drop(held);
        full(later.blocking_load(0..10).unwrap_err());
        // All that was borrowed has been returned.
        drop(mapping);
        assert_eq!(budget.locked(), 0);
        assert_eq!(*later.blocking_load(0..10).unwrap(), pattern(0, 10));
    });
}

/// mremap(2) with `MREMAP_FIXED` may have left a hole when it fails.
#[test]
fn addresses_are_given_up_if_a_copy_is_not_moved_there() {
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 200_000);
        let budget = budget(4);
        let mapping = mapping(&path, &budget);
        let held = mapping.blocking_load(0..WINDOW).unwrap();
        let free = mapping.blocking_load(WINDOW..2 * WINDOW).unwrap();
        let (start, next) = (held.as_ptr() as usize, free.as_ptr() as usize);
        drop(free);
        // `flags` is the fourth argument.
        const FLAGS: u32 = 16 + 3 * 8;
        filter(vec![
            load(NUMBER),
            unless(libc::SYS_mremap as u32, 3),
            load(FLAGS),
            unless((libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u32, 1),
            refuse(libc::ENOMEM),
        ]);
        let truncated = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                truncate(&path);
                truncated.store(true, Ordering::Release);
            });
            wait_until("the lease is being broken", || mapping.why().is_some());
            std::thread::sleep(Duration::from_millis(100));
            // The bytes are still those of the file.
            assert!(!truncated.load(Ordering::Acquire));
            assert_eq!(*held, pattern(0, WINDOW as usize));
            assert_eq!(mapping.stats().copied, 0);
            drop(held);
            wait_until("the file changes", || truncated.load(Ordering::Acquire));
        });
        wait_until("the frames are free", || budget.locked() == 0);
        drop((mapping, budget));
        for window in [start, next] {
            assert!(!is_free(window, WINDOW as usize));
        }
    });
}

#[test]
fn a_sandbox_denies_locks_or_advice_or_signals() {
    let calls = [
        ("mlock2", libc::SYS_mlock2),
        ("madvise", libc::SYS_madvise),
        ("sigtimedwait", libc::SYS_rt_sigtimedwait),
        ("mremap", libc::SYS_mremap),
    ];
    match role() {
        None => calls.iter().for_each(|(name, _)| in_child(name)),
        Some(role) => {
            let (_, call) = calls.iter().find(|(name, _)| *name == role).unwrap();
            let dir = scratch();
            if role == "mremap" {
                // Copies are not possible: nothing is borrowed when the file is truncated.
                let path = patterned(dir.path(), "file", 200_000);
                let budget = budget(2);
                let mapping = mapping(&path, &budget);
                deny(&[*call], libc::EPERM);
                drop(mapping.blocking_load(0..10).unwrap());
                truncate(&path);
                return;
            }
            deny(&[*call], libc::EPERM);
            assert!(!whatever_is_allowed(&patterned(
                dir.path(),
                "file",
                200_000
            )));
        }
    }
}

/// Memory that is divided into nearly as many mappings as the process may have (`vm.max_map_count`).
struct Divided(*mut libc::c_void);

const PAGE: usize = 4096;
const DIVIDED: usize = PAGE << 20;

impl Divided {
    /// Leaves room for this many mappings.
    fn but_for(room: usize) -> Divided {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses. Nothing accesses it.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), DIVIDED, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the pages are in the memory that was just mapped.
        let protect = |page: usize, access| unsafe {
            libc::mprotect(start.byte_add(page * PAGE), PAGE, access)
        };
        let mut pages = (1..DIVIDED / PAGE).step_by(2);
        let full = pages.find(|page| protect(*page, libc::PROT_READ) != 0);
        let full = full.expect("more than half a million mappings are allowed");
        for page in (0..room / 2).map(|n| full - 2 - 2 * n) {
            assert_eq!(protect(page, libc::PROT_NONE), 0);
        }
        Divided(start)
    }
}

/// Makes a mapping when there are as many as `vm.max_map_count`: mmap(2) leaves one more than the other calls.
fn one_more() -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses. Nothing accesses it.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0) };
    mapped != libc::MAP_FAILED
}

impl Drop for Divided {
    fn drop(&mut self) {
        // SAFETY: nothing accesses the memory.
        unsafe { libc::munmap(self.0, DIVIDED) };
    }
}

#[test]
fn a_window_is_released_for_another_if_there_are_no_more_mappings() {
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 10 * WINDOW as usize);
        let budget = budget(10);
        let mapping = mapping(&path, &budget);
        for window in [1, 3] {
            drop(mapping.blocking_load(window * WINDOW..window * WINDOW + 5));
        }
        assert_eq!(mapping.stats().loaded, 2);
        let divided = Divided::but_for(2);
        for window in [5, 7, 3] {
            let at = window * WINDOW;
            let loaded = mapping.blocking_load(at..at + 5).map(|held| held.to_vec());
            assert_eq!(loaded.unwrap(), pattern(at, 5));
        }
        assert_ne!(mapping.stats().evicted, 0);
        drop(divided);
    });
}

#[test]
fn a_lease_is_given_back_if_there_are_no_more_mappings() {
    alone(|| {
        let _limit = Limit::new("vm.max_map_count".into());
        let dir = scratch();
        let path = patterned(dir.path(), "file", 3 * WINDOW as usize);
        let budget = budget(4);
        let mapping = mapping(&path, &budget);
        let held = [0, 2].map(|n| {
            let at = n * WINDOW;
            mapping.blocking_load(at..at + WINDOW).unwrap()
        });
        let (start, truncated) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                wait_until("the memory is divided", || start.load(Ordering::Acquire));
                truncate(&path);
                truncated.store(true, Ordering::Release);
            });
            let divided = Divided::but_for(0);
            assert!(one_more() && !one_more());
            start.store(true, Ordering::Release);
            wait_until("the file changes", || truncated.load(Ordering::Acquire));
            drop(divided);
        });
        for (held, n) in held.iter().zip([0, 2]) {
            assert!(**held == *pattern(n * WINDOW, WINDOW as usize));
        }
        assert_eq!(mapping.stats().copied, 2);
        drop(held);
        wait_until("the copies are freed", || budget.locked() == 0);
    });
}

#[test]
fn a_lease_is_given_back_when_there_are_mappings_again() {
    // With too few mappings nothing is loaded, and with too many the thread that gives leases back
    // keeps some for later. The numbers between depend on the threads that are started.
    let rooms = (12..80).step_by(4);
    match role() {
        None => {
            let _limit = Limit::new("vm.max_map_count".into());
            let waits = |room: usize| catch_unwind(|| in_child(&room.to_string())).is_ok();
            assert!(rooms.into_iter().any(waits));
        }
        Some(room) => a_lease_waits_for_mappings(room.parse().unwrap()),
    }
}

fn a_lease_waits_for_mappings(room: usize) {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 2 * WINDOW as usize);
    let budget = budget(4);
    let truncated = AtomicBool::new(false);
    std::thread::scope(|s| {
        // A panic drops the sender, too.
        let (start, started) = channel::<()>();
        let (path, done) = (&path, &truncated);
        s.spawn(move || {
            let _ = started.recv();
            truncate(path);
            done.store(true, Ordering::Release);
        });
        // The library starts a thread and maps the file, and has a few mappings left.
        let divided = Divided::but_for(room);
        let mapping = mapping(path, &budget);
        let loaded = mapping.blocking_load(0..WINDOW);
        let more = loaded.is_ok().then(|| Divided::but_for(2));
        drop(start);
        let held = loaded.unwrap();
        wait_until("the lease is being broken", || mapping.why().is_some());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!truncated.load(Ordering::Acquire));
        assert!(*held == *pattern(0, WINDOW as usize));
        drop((divided, more));
        wait_until("the file changes", || truncated.load(Ordering::Acquire));
        assert!(*held == *pattern(0, WINDOW as usize));
        assert_eq!(mapping.stats().copied, 1);
    });
}
