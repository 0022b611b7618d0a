//! Bytes that are borrowed from mappings.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use nowait::mapping::{Budget, BudgetOptions};
use proptest::prelude::*;

use super::NowaitFileSystem;
use super::object_store::path::Path;
use super::object_store::{ObjectStore, ObjectStoreExt};
use crate::common::{open_below, pattern, patterned, scratch, wait_until};

const MIB: u64 = 1 << 20;

/// A budget of this process alone, with windows of 64 KiB.
fn budget(bytes: u64) -> Budget {
    let options = BudgetOptions::new().limit(bytes).window(64 << 10);
    options.build().unwrap()
}

/// Reads a range until its bytes are borrowed.
fn read_until_borrowed(store: &NowaitFileSystem, location: &Path, range: &Range<u64>) -> Bytes {
    let mut bytes = Bytes::new();
    wait_until("no bytes were borrowed", || {
        let before = store.stats().bytes_borrowed;
        bytes = pollster::block_on(store.get_range(location, range.clone())).unwrap();
        store.stats().bytes_borrowed > before
    });
    bytes
}

#[test]
fn ranges_that_are_read_often_are_borrowed() {
    let root = scratch();
    let path = patterned(root.path(), "file", MIB as usize);
    let bytes = pattern(MIB as usize);
    let budget = budget(16 * MIB);
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let store = store.with_mapped_reads(&budget);
    let location = Path::from("file");
    let range = 60_000..200_000;
    let borrowed = read_until_borrowed(&store, &location, &range);
    assert_eq!(borrowed, bytes[60_000..200_000]);
    assert!(budget.locked() > 0 && budget.locked() <= MIB);
    // Ranges that are borrowed, read, joined and empty.
    let ranges = [
        199_000..200_000,
        70_000..70_010,
        71_000..71_010,
        5..5,
        900_000..900_001,
    ];
    let read = pollster::block_on(store.get_ranges(&location, &ranges)).unwrap();
    for (range, read) in ranges.iter().zip(read) {
        assert_eq!(read, bytes[range.start as usize..range.end as usize]);
    }
    // The rest of the part is resident, too, and the budget has small windows.
    let rest = read_until_borrowed(&store, &location, &(900_000..900_001));
    assert_eq!(rest, bytes[900_000..900_001]);
    let stats = store.stats();
    assert_eq!(stats.misses, 0, "{stats:?}");
    assert!(stats.bytes_borrowed <= stats.bytes_cached, "{stats:?}");

    // The bytes stay as they are when the file is written, and later reads return the new ones.
    fs::write(&path, vec![7; MIB as usize]).unwrap();
    assert_eq!(borrowed, bytes[60_000..200_000]);
    let new = read_until_borrowed(&store, &location, &range);
    assert_eq!(new, vec![7; 140_000]);

    // Nothing stays open or locked.
    fs::remove_file(&path).unwrap();
    drop((borrowed, new, rest));
    wait_until("the file stays open", || open_below(root.path()).is_empty());
    wait_until("memory stays locked", || budget.locked() == 0);
}

#[test]
fn a_full_budget_is_left_alone() {
    let root = scratch();
    patterned(root.path(), "file", MIB as usize);
    let budget = budget(MIB);
    let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
    let store = store.with_mapped_reads(&budget);
    let location = Path::from("file");
    for at in (0..MIB).step_by(4096) {
        let read = pollster::block_on(store.get_range(&location, at..at + 4096)).unwrap();
        assert_eq!(read, pattern(MIB as usize)[at as usize..][..4096]);
    }
    // It has no room for a window of the usual size.
    assert_eq!((budget.locked(), store.stats().bytes_borrowed), (0, 0));
}

/// A change of the file, or a read of it.
#[derive(Clone, Debug)]
enum Step {
    Read(Range<u64>),
    Rest,
    Overwrite(u8),
    Replace(u8, u64),
    Truncate(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..300_000u64, 0..100_000u64).prop_map(|(at, len)| at..at + len);
    prop_oneof![
        4 => range.prop_map(Step::Read),
        2 => Just(Step::Rest),
        1 => any::<u8>().prop_map(Step::Overwrite),
        1 => (any::<u8>(), 0..400_000u64).prop_map(|(byte, len)| Step::Replace(byte, len)),
        1 => (0..400_000u64).prop_map(Step::Truncate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each read returns the bytes that the file has, and they stay as they are.
    #[test]
    fn the_file_may_change_between_reads(steps in prop::collection::vec(step(), 1..12)) {
        let root = scratch();
        let path = patterned(root.path(), "file", 400_000);
        let store = NowaitFileSystem::new_with_prefix(root.path()).unwrap();
        let store = store.with_mapped_reads(&budget(16 * MIB));
        let location = Path::from("file");
        let mut kept = Vec::new();
        for step in steps {
            let len = fs::metadata(&path).unwrap().len();
            match step {
                Step::Read(range) => {
                    let expected = fs::read(&path).unwrap();
                    let range = range.start.min(len)..range.end.min(len);
                    let expected = expected[range.start as usize..range.end as usize].to_vec();
                    for _ in 0..40 {
                        let read = pollster::block_on(store.get_ranges(&location, std::slice::from_ref(&range)));
                        kept.push((read.unwrap().remove(0), expected.clone()));
                    }
                }
                Step::Rest => std::thread::sleep(Duration::from_millis(2)),
                Step::Overwrite(byte) => {
                    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                    std::os::unix::fs::FileExt::write_all_at(&file, &vec![byte; len as usize], 0).unwrap();
                }
                Step::Replace(byte, len) => {
                    fs::write(root.path().join("new"), vec![byte; len as usize]).unwrap();
                    fs::rename(root.path().join("new"), &path).unwrap();
                }
                Step::Truncate(len) => {
                    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.set_len(len).unwrap();
                }
            }
            for (bytes, expected) in &kept {
                prop_assert!(bytes == expected);
            }
        }
    }
}
