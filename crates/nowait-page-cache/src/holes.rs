//! The holes of a sparse file (lseek(2), SEEK_DATA and SEEK_HOLE).

use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;

/// The most ranges of data that [`data_ranges`] returns for a file.
const MAX_RANGES: usize = 8192;

/// The ranges of a file that are no holes, in order. A file with very many ranges has the rest in
/// its last range.
pub fn data_ranges(file: impl AsFd, stat: &Stat) -> Vec<Range<u64>> {
    let size = stat.st_size as u64;
    let whole = 0..size;
    if size == 0 || (stat.st_blocks as u64).saturating_mul(512) >= size {
        return Vec::from_iter((size > 0).then_some(whole));
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = data_from(&file, at).min(size);
        if start == size {
            break;
        }
        let end = match ranges.len() + 1 < MAX_RANGES {
            true => hole_from(&file, start).min(size),
            false => size,
        };
        ranges.push(start..end);
        at = end;
    }
    ranges
}

/// The first data byte at or after `from`; `u64::MAX` if there is none; `from` if the filesystem
/// does not support the query.
pub fn data_from(file: impl AsFd, from: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => u64::MAX,
        Err(_) => from,
    }
}

/// The first byte of the next hole. The end of the file counts as a hole.
pub fn hole_from(file: impl AsFd, from: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Hole(from)) {
        Ok(at) if at > from => at,
        _ => u64::MAX,
    }
}

/// Takes the next part with data from the beginning of a range. It has at most `most` bytes, and no hole if the file
/// `is_sparse`. `None` if the rest of the range is a hole, or it is empty.
pub fn take_window(
    file: impl AsFd,
    range: &mut Range<u64>,
    is_sparse: bool,
    most: u64,
) -> Option<Range<u64>> {
    if is_sparse {
        range.start = data_from(&file, range.start).min(range.end);
    }
    let mut window = range.start..range.end.min(range.start.saturating_add(most));
    if window.is_empty() {
        return None;
    }
    if is_sparse {
        window.end = window.end.min(hole_from(&file, window.start));
    }
    range.start = window.end;
    Some(window)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_is_found_between_holes() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let ranges = || data_ranges(&file, &rustix::fs::fstat(&file).unwrap());
        assert_eq!(ranges(), []);
        file.set_len(10 << 20).unwrap();
        assert_eq!(ranges(), []);
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[1; 9], 10 << 20).unwrap();
        file.sync_all().unwrap();
        let end = (10 << 20) + 9;
        assert_eq!(ranges(), [1 << 20..(1 << 20) + 4096, 10 << 20..end]);
        let mut range = 1..end;
        let mut take = |most| take_window(&file, &mut range, true, most);
        assert_eq!(take(1024), Some(1 << 20..(1 << 20) + 1024));
        assert_eq!(take(1 << 30), Some((1 << 20) + 1024..(1 << 20) + 4096));
        assert_eq!(take(1 << 30), Some(10 << 20..end));
        assert_eq!(take(1 << 30), None);
        let mut hole = 0..1 << 20;
        assert_eq!(take_window(&file, &mut hole, true, 4096), None);
        assert!(hole.is_empty());
        assert_eq!(take_window(&file, &mut (0..9), false, 5), Some(0..5));
        file.write_all_at(&vec![1; end as usize], 0).unwrap();
        assert_eq!(ranges(), std::iter::once(0..end).collect::<Vec<_>>());
    }
}
