//! One file: what was asked about it, and what was said.

use std::ops::Range;
use std::path::PathBuf;

use nowait::residency::{Answer, PageMap, Probe, Residency};
use rustix::fs::Stat;

use super::strip;
use crate::terminal::Terminal;
use crate::tree::{Found, Unopened};

/// A file as it is shown.
pub struct Row {
    pub path: PathBuf,
    /// Whether it is met for the first time.
    pub counted: bool,
    pub looked: Looked,
}

/// What a look at a file brought.
pub struct Looked {
    pub stat: Stat,
    pub answer: Answer<Residency>,
    pub picture: Picture,
}

/// Whether and how it is to be shown where the cached pages are.
#[derive(Clone, Copy)]
pub enum Drawing {
    None,
    Strip(Terminal),
    Ranges,
}

/// Where the cached pages are.
pub enum Picture {
    None,
    Strip(String),
    Ranges(PageMap),
}

impl Looked {
    /// The file's length in bytes.
    pub fn size(&self) -> u64 {
        self.stat.st_size as u64
    }

    /// Memory that the file has in the page cache, in bytes; 0 if nobody knows.
    pub fn cached_bytes(&self) -> u64 {
        self.answer.known().map_or(0, |known| bytes(known.cached))
    }
}

impl Picture {
    /// Whether there are no ranges to be shown.
    pub fn has_no_ranges(&self) -> bool {
        !matches!(self, Picture::Ranges(_))
    }

    /// The cached byte ranges, if they were asked for and are known.
    pub fn ranges(&self) -> Option<impl Iterator<Item = Range<u64>> + '_> {
        match self {
            Picture::Ranges(map) => Some(map.resident()),
            Picture::None | Picture::Strip(_) => None,
        }
    }
}

/// Opens a file and asks about all of it.
pub fn look(found: &Found, drawing: Drawing) -> Result<Looked, Unopened> {
    let (file, stat) = found.open()?;
    let probe = Probe::new(&file)?;
    let answer = probe.residency(0..u64::MAX)?;
    let map = || probe.page_map(0..u64::MAX);
    let picture = match drawing {
        Drawing::None => Picture::None,
        Drawing::Strip(terminal) => map()?.known().map_or(Picture::None, |map| {
            Picture::Strip(strip::draw(&map, terminal))
        }),
        Drawing::Ranges => map()?.known().map_or(Picture::None, Picture::Ranges),
    };
    Ok(Looked {
        stat,
        answer,
        picture,
    })
}

/// The memory of so many pages.
pub fn bytes(pages: u64) -> u64 {
    pages * rustix::param::page_size() as u64
}
