//! The order in which metadata is asked for, and the order in which entries are returned.
//!
//! A scan collects listed entries until there are enough to be worth sorting. It then divides them
//! into batches, whose metadata workers query. Inodes are stored on the device roughly in the order
//! of their numbers, and many share a block. In that order each block is read once, and the device
//! reads forwards.

use std::collections::VecDeque;

use super::entry::EntryTable;

/// The order in which a scan returns entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Entries are returned as soon as they are ready.
    #[default]
    Unordered,
    /// By inode number within a run. A run has half of the entries of
    /// [`max_buffered`](crate::scan::Options::max_buffered). The next run is listed meanwhile.
    Inode,
    /// By name, compared byte by byte. The whole directory is held in memory first, without a
    /// limit.
    Name,
}

/// The order in which a scan asks for metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatOrder {
    /// The order of the directory's listing.
    Listed,
    /// By inode number within each run.
    Inode,
}

/// Divides listed entries into batches of at most `size` entries.
#[expect(
    clippy::cast_possible_truncation,
    reason = "there are far fewer buffers, and entries in each"
)]
pub(super) fn sorted(
    listed: Vec<EntryTable>,
    stat_order: StatOrder,
    size: usize,
) -> VecDeque<EntryTable> {
    match stat_order {
        StatOrder::Listed => listed
            .into_iter()
            .flat_map(|rows| slices(rows, size))
            .collect(),
        StatOrder::Inode => {
            let mut keys: Vec<(u64, u32, u32)> = Vec::new();
            for (i, rows) in listed.iter().enumerate() {
                let inos = rows.records.iter().enumerate();
                keys.extend(inos.map(|(j, record)| (record.ino, i as u32, j as u32)));
            }
            keys.sort_unstable();
            collect(&listed, &keys, size, |key| (key.1, key.2))
        }
    }
}

/// All entries, sorted by name.
#[expect(
    clippy::cast_possible_truncation,
    reason = "there are far fewer buffers, and entries in each"
)]
pub(super) fn by_name(all: &[EntryTable], size: usize) -> VecDeque<EntryTable> {
    let mut keys: Vec<(u32, u32)> = Vec::new();
    for (i, rows) in all.iter().enumerate() {
        keys.extend((0..rows.len()).map(|j| (i as u32, j as u32)));
    }
    let name = |key: &(u32, u32)| all[key.0 as usize].name(key.1 as usize);
    keys.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    collect(all, &keys, size, |key| *key)
}

/// Batches of the entries that `keys` refer to, in the order of `keys`.
fn collect<K>(
    from: &[EntryTable],
    keys: &[K],
    size: usize,
    index: impl Fn(&K) -> (u32, u32),
) -> VecDeque<EntryTable> {
    let batch = |keys: &[K]| {
        let mut rows = EntryTable::with_capacity(keys.len(), keys.len() * 24);
        for key in keys {
            let (i, j) = index(key);
            rows.copy(&from[i as usize], j as usize);
        }
        rows
    };
    keys.chunks(size.max(1)).map(batch).collect()
}

/// The same entries in pieces of at most `size`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "there are far fewer buffers, and entries in each"
)]
pub(super) fn slices(rows: EntryTable, size: usize) -> Vec<EntryTable> {
    if rows.len() <= size {
        return Vec::from_iter((rows.len() > 0).then_some(rows));
    }
    let all: Vec<u32> = (0..rows.len() as u32).collect();
    let from = [rows];
    collect(&from, &all, size, |at| (0, *at)).into()
}
