//! The residency of one file.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use nowait::residency::{Answer, PageMap, Probe, Residency};
use nowait_page_cache::OpenError;
use rustix::fs::{FileType, SeekFrom, Stat};

use super::strip;
use crate::terminal::Terminal;

/// One shown file.
pub struct Row {
    pub path: PathBuf,
    /// False if the file was already counted under another name.
    pub counted: bool,
    pub examined: Examined,
}

/// The result of querying one file.
pub struct Examined {
    pub stat: Stat,
    /// The length of the file or the block device in bytes.
    pub size: u64,
    pub answer: Answer<Residency>,
    pub ranges: CachedRanges,
}

/// The form in which cached ranges are shown.
#[derive(Clone, Copy)]
pub enum RangeFormat {
    None,
    Strip(Terminal),
    Ranges,
}

/// The cached ranges of a file, as they are shown.
pub enum CachedRanges {
    None,
    Strip(String),
    Ranges(PageMap),
}

impl Examined {
    /// The file's memory in the page cache in bytes; 0 if it is unknown.
    pub fn cached_bytes(&self) -> u64 {
        self.answer.known().map_or(0, |known| bytes(known.cached))
    }
}

impl CachedRanges {
    /// The cached byte ranges, if they were requested and are known.
    pub fn ranges(&self) -> Option<impl Iterator<Item = Range<u64>> + '_> {
        match self {
            CachedRanges::Ranges(map) => Some(map.resident()),
            CachedRanges::None | CachedRanges::Strip(_) => None,
        }
    }
}

/// Queries the residency of all pages of a file or block device.
pub fn examine(file: File, stat: Stat, format: RangeFormat) -> Result<Examined, OpenError> {
    let size = match FileType::from_raw_mode(stat.st_mode) {
        // fstat(2) reports 0.
        FileType::BlockDevice => rustix::fs::seek(&file, SeekFrom::End(0))?,
        _ => stat.st_size as u64,
    };
    let probe = Probe::new(&file)?;
    let answer = probe.residency(0..u64::MAX)?;
    let map = || probe.page_map(0..u64::MAX);
    let ranges = match format {
        RangeFormat::None => CachedRanges::None,
        RangeFormat::Strip(terminal) => map()?.known().map_or(CachedRanges::None, |map| {
            CachedRanges::Strip(strip::draw(&map, terminal))
        }),
        RangeFormat::Ranges => map()?
            .known()
            .map_or(CachedRanges::None, CachedRanges::Ranges),
    };
    Ok(Examined {
        stat,
        size,
        answer,
        ranges,
    })
}

/// The size of a number of pages in bytes.
pub fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(rustix::param::page_size() as u64)
}
