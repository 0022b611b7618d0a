//! The residency of one file.

use std::ops::Range;
use std::path::PathBuf;

use nowait::residency::{Answer, PageMap, Probe, Residency};
use rustix::fs::Stat;

use super::strip;
use crate::terminal::Terminal;
use crate::tree::{Found, Unopened};

/// One shown file.
pub struct Row {
    pub path: PathBuf,
    /// False if the file was already counted under another name.
    pub counted: bool,
    pub looked: Looked,
}

/// The result of querying one file.
pub struct Looked {
    pub stat: Stat,
    pub answer: Answer<Residency>,
    pub picture: Picture,
}

/// The form in which cached ranges are shown.
#[derive(Clone, Copy)]
pub enum Drawing {
    None,
    Strip(Terminal),
    Ranges,
}

/// The cached ranges of a file, as they are shown.
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

    /// The file's memory in the page cache in bytes; 0 if it is unknown.
    pub fn cached_bytes(&self) -> u64 {
        self.answer.known().map_or(0, |known| bytes(known.cached))
    }
}

impl Picture {
    /// Returns true if there are no ranges to show.
    pub fn has_no_ranges(&self) -> bool {
        !matches!(self, Picture::Ranges(_))
    }

    /// The cached byte ranges, if they were requested and are known.
    pub fn ranges(&self) -> Option<impl Iterator<Item = Range<u64>> + '_> {
        match self {
            Picture::Ranges(map) => Some(map.resident()),
            Picture::None | Picture::Strip(_) => None,
        }
    }
}

/// Opens a file and queries the residency of all its pages.
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

/// The size of a number of pages in bytes.
pub fn bytes(pages: u64) -> u64 {
    pages * rustix::param::page_size() as u64
}
