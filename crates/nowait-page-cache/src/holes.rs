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
        file.write_all_at(&vec![1; end as usize], 0).unwrap();
        assert_eq!(ranges(), std::iter::once(0..end).collect::<Vec<_>>());
    }
}
