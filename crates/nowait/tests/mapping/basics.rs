//! Loading, borrowing, eviction, and a lease that is broken.

use std::fs;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use nowait::File;
use nowait::mapping::Unavailable;

use crate::common::files::{pattern, patterned, scratch};
use crate::common::wait::wait_until;
use crate::{WINDOW, budget, mapped};

const MIB: usize = 1 << 20;

#[test]
fn what_is_loaded_can_be_borrowed() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", MIB + 100);
    let file = File::blocking_open(&path).unwrap();
    let mapping = mapped(&file, &budget(32));
    assert_eq!(mapping.why(), None);
    assert_eq!(mapping.len(), (MIB + 100) as u64);
    assert!(mapping.get(0..10).is_none());
    let bytes = mapping.blocking_load(10..20).unwrap();
    assert_eq!(*bytes, pattern(10, 10));
    assert_eq!(*mapping.get(0..64 << 10).unwrap(), pattern(0, 64 << 10));
    assert!(mapping.get(0..(64 << 10) + 1).is_none());
    let all = pollster::block_on(mapping.load(0..(MIB + 100) as u64)).unwrap();
    assert_eq!(*all, pattern(0, MIB + 100));
    let mut buf = vec![0; 5000];
    assert_eq!(
        mapping
            .blocking_read_at(&mut buf[..], (MIB - 100) as u64)
            .unwrap(),
        200
    );
    assert_eq!(buf[..200], pattern((MIB - 100) as u64, 200));
    let read = pollster::block_on(mapping.read_at(Vec::with_capacity(300), 77));
    assert_eq!(read.buf, pattern(77, 300));
    std::thread::scope(|s| {
        s.spawn(move || drop(all));
    });
    drop(bytes);
}

#[test]
fn the_least_recently_used_window_goes_first() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", MIB);
    let file = File::blocking_open(&path).unwrap();
    let budget = budget(2);
    let mapping = mapped(&file, &budget);
    let at = |window: u64| window * (64 << 10)..window * (64 << 10) + 10;
    drop(mapping.blocking_load(at(0)).unwrap());
    drop(mapping.blocking_load(at(1)).unwrap());
    drop(mapping.get(at(1)).unwrap());
    drop(mapping.get(at(0)).unwrap());
    drop(mapping.blocking_load(at(2)).unwrap());
    assert!(mapping.get(at(1)).is_none());
    let held = mapping.get(at(0)).unwrap();
    drop(mapping.get(at(2)).unwrap());
    drop(mapping.blocking_load(at(3)).unwrap());
    assert!(mapping.get(at(2)).is_none());
    assert_eq!(*held, pattern(0, 10));
    let held2 = mapping.get(at(3)).unwrap();
    let error = mapping.blocking_load(at(4)).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOMEM));
    drop((held, held2));
    assert!(mapping.blocking_load(at(4)).is_ok());
    assert_eq!(budget.locked(), 2 * (64 << 10));
    drop(mapping);
    assert_eq!(budget.locked(), 0);
}

#[test]
fn borrowed_bytes_outlive_a_truncation() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", MIB);
    let file = File::blocking_open(&path).unwrap();
    let budget = budget(32);
    let mapping = mapped(&file, &budget);
    let all = mapping.blocking_load(0..MIB as u64).unwrap();
    let mut writer = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    assert_eq!(*all, pattern(0, MIB));
    assert_eq!(mapping.why(), Some(Unavailable::LeaseBroken));
    assert!(mapping.get(0..10).is_none());
    writer.write_all(b"new").unwrap();
    let mut buf = [0; 10];
    assert_eq!(mapping.blocking_read_at(&mut buf[..], 0).unwrap(), 3);
    assert_eq!(*all, pattern(0, MIB));
    assert_eq!(mapping.stats().copied, 16);
    drop(all);
    wait_until("the copies are freed", || budget.locked() == 0);
}

#[test]
fn ranges_that_the_file_does_not_have_are_refused() {
    let dir = scratch();
    let file = File::blocking_open(patterned(dir.path(), "file", 1000)).unwrap();
    let mapping = mapped(&file, &budget(2));
    assert_eq!(*mapping.blocking_load(0..1000).unwrap(), pattern(0, 1000));
    #[allow(clippy::reversed_empty_ranges)]
    for range in [
        0..1001,
        0..0,
        5..4,
        1000..1001,
        0..u64::MAX,
        u64::MAX - 1..u64::MAX,
    ] {
        assert!(mapping.get(range.clone()).is_none(), "{range:?}");
        assert!(mapping.get_send(range.clone()).is_none(), "{range:?}");
        let error = mapping.blocking_load(range).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL));
    }
    let mut buf = [0; 10];
    for (at, n) in [(995, 5), (1000, 0), (5000, 0), (1 << 40, 0)] {
        assert_eq!(mapping.blocking_read_at(&mut buf[..], at).unwrap(), n);
    }
    assert_eq!(mapping.blocking_read_at(&mut buf[..0], 5).unwrap(), 0);
}

#[test]
fn a_range_is_loaded_in_the_background() {
    let dir = scratch();
    let file = File::blocking_open(patterned(dir.path(), "file", MIB)).unwrap();
    let mapping = mapped(&file, &budget(4));
    mapping.prefetch(0..MIB as u64);
    wait_until("four windows are resident", || mapping.stats().loaded == 4);
    let four = mapping.get(0..4 * crate::WINDOW).unwrap();
    assert_eq!(*four, pattern(0, 4 << 16));
    assert!(mapping.get(0..4 * crate::WINDOW + 1).is_none());
    // A future that is dropped holds nothing afterwards.
    drop(four);
    for at in 0..12 {
        let mut load = mapping.load(at * crate::WINDOW..(at + 2) * crate::WINDOW);
        let mut cx = Context::from_waker(Waker::noop());
        let _ = Pin::new(&mut load).poll(&mut cx);
    }
    wait_until("four windows can be held", || {
        mapping
            .blocking_load(12 * crate::WINDOW..MIB as u64)
            .is_ok()
    });
}

#[test]
fn borrowed_bytes_may_be_moved_as_far_as_they_say() {
    fn moves<T: Send>(_: &T) {}
    fn is_shared<T: Sync>(_: &T) {}
    let dir = scratch();
    let file = File::blocking_open(patterned(dir.path(), "file", MIB)).unwrap();
    let mapping = mapped(&file, &budget(4));
    moves(&mapping);
    is_shared(&mapping);
    moves(&mapping.load(0..10));
    moves(&mapping.read_at(vec![0; 10], 0));
    let held = mapping.blocking_load(0..10).unwrap();
    moves(&held);
    is_shared(&held);
    is_shared(&mapping.get(0..10).unwrap());
}

#[test]
fn owned_bytes_keep_their_mapping() {
    fn moves<T: Send + Sync + 'static>(owned: T) -> T {
        owned
    }
    let dir = scratch();
    let path = patterned(dir.path(), "file", MIB);
    let file = File::blocking_open(&path).unwrap();
    let budget = budget(4);
    let mapping = Arc::new(mapped(&file, &budget));
    assert!(mapping.get_owned(0..10).is_none());
    // Three windows.
    let range = WINDOW - 10..2 * WINDOW + 10;
    drop(mapping.blocking_load(range.clone()).unwrap());
    let owned = moves(mapping.get_owned(range.clone()).unwrap());
    assert!(mapping.get_owned(0..MIB as u64 + 1).is_none());
    drop((mapping, file));
    assert_eq!(budget.locked(), 3 * WINDOW);
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    let bytes = std::thread::spawn(move || owned.to_vec()).join().unwrap();
    assert_eq!(bytes, pattern(range.start, bytes.len()));
    assert_eq!(bytes.len() as u64, range.end - range.start);
    assert_eq!(budget.locked(), 0);
}

#[test]
fn threads_end_while_others_borrow() {
    let dir = scratch();
    let file = File::blocking_open(patterned(dir.path(), "file", MIB)).unwrap();
    let budget = budget(4);
    let mapping = mapped(&file, &budget);
    let held = mapping.blocking_load(0..10).unwrap();
    for round in 0..50u64 {
        std::thread::scope(|s| {
            for thread in 0..3 {
                let (at, mapping) = ((round + thread) % 16 * WINDOW, &mapping);
                s.spawn(move || {
                    drop(mapping.blocking_load(at..at + 9).unwrap());
                    if let Some(bytes) = mapping.get(at..at + 9) {
                        assert_eq!(*bytes, pattern(at, 9));
                    }
                });
            }
        });
    }
    assert_eq!(*held, pattern(0, 10));
    drop(held);
    drop(mapping);
    assert_eq!(budget.locked(), 0);
}
