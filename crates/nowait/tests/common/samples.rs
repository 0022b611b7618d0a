//! Files with bytes that depend on the file and the position, to read on fresh filesystems.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

use super::cache::evict;

/// Eight bytes of a file that is made from `seed`. No two pages and no two files are alike: a byte from
/// another position is a wrong byte.
fn word(seed: u64, number: u64) -> [u8; 8] {
    let mut x = number ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).to_le_bytes()
}

/// The bytes for a range of positions.
pub fn bytes(seed: u64, range: Range<u64>) -> Vec<u8> {
    let words = range.start / 8..range.end.div_ceil(8);
    let before = (range.start % 8) as usize;
    let len = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(len + 16);
    for number in words {
        bytes.extend_from_slice(&word(seed, number));
    }
    bytes[before..before + len].to_vec()
}

/// A file on disk, and its content.
#[derive(Debug)]
pub struct Sample {
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl Sample {
    /// A file of `size` bytes.
    pub fn new(dir: &Path, name: &str, size: u64) -> Sample {
        Sample::sparse(dir, name, size, std::slice::from_ref(&(0..size)))
    }

    /// A file of `size` bytes with data in these ranges and holes elsewhere. All data is on the device.
    pub fn sparse(dir: &Path, name: &str, size: u64, data: &[Range<u64>]) -> Sample {
        let path = dir.join(name);
        let seed = size ^ name.len() as u64;
        let mut content = vec![0; size as usize];
        let mut file = File::create(&path).expect("a new file");
        for range in data {
            let piece = bytes(seed, range.clone());
            file.seek(SeekFrom::Start(range.start)).expect("seek");
            file.write_all(&piece).expect("write");
            content[range.start as usize..range.end as usize].copy_from_slice(&piece);
        }
        file.set_len(size).expect("the size");
        file.sync_all().expect("sync");
        let sample = Sample { path, content };
        sample.check();
        sample
    }

    pub fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// A new descriptor without readahead: a read caches the pages that it touches and no others.
    pub fn open(&self) -> File {
        let file = File::open(&self.path).expect("open");
        fadvise(&file, 0, None, Advice::Random).expect("fadvise");
        file
    }

    /// Checks the content with pread(2). All pages are cached afterwards.
    pub fn check(&self) {
        let seen = fs::read(&self.path).expect("read");
        assert!(seen == self.content, "{} has changed", self.path.display());
    }

    /// Drops all its pages from the page cache.
    pub fn evict(&self) {
        evict(&self.path);
    }

    /// Reads all its pages into the page cache.
    pub fn warm(&self) {
        self.touch(0..self.size());
    }

    /// Reads the pages of these bytes into the page cache.
    pub fn touch(&self, range: Range<u64>) {
        let end = range.end.min(self.size());
        let mut piece = vec![0; end.saturating_sub(range.start) as usize];
        self.open()
            .read_exact_at(&mut piece, range.start)
            .expect("pread");
    }

    /// The bytes that a read of `len` bytes at `offset` must return.
    pub fn expected(&self, offset: u64, len: usize) -> &[u8] {
        let start = offset.min(self.size()) as usize;
        &self.content[start..start.saturating_add(len).min(self.content.len())]
    }
}
