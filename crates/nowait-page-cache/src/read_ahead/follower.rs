//! Finds out what the program uses of the files, and where it is.
//!
//! ```text
//!  /proc/self/maps ─► mappings of the files ─► /proc/self/pagemap: which pages were touched?
//!  /proc/self/fd ───► descriptors of the files ─► /proc/self/fdinfo: positions
//! ```
//! A page that the program has touched through a mapping is present in its page table, with its
//! neighbours of 64 KiB (fault_around_bytes). The kernel reports this to each process for its own
//! mappings. The position of a descriptor moves with read(2). Reads with pread(2), and those of
//! other processes, are not seen.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nowait::residency::page_size;
use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::examined::Examined;
use super::files::Files;
use crate::proc::{self, Mapping};

/// A file is examined in parts. A part is used if one of its first pages is present.
const SMALLEST_PART: u64 = 1 << 20;
/// The largest number of parts of a file.
const MOST_PARTS: u64 = 4096;
/// The number of pages that are examined at the beginning of each part.
const PAGES: usize = 16;
/// The number of unused parts after which the search near the position ends.
const UNUSED_PARTS: u32 = 4;
/// The shortest and the longest time between two searches near the position.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(32);
/// The shortest time between two searches of all mappings.
const ALL: Duration = Duration::from_millis(20);
/// A search of all mappings may take one part in this many of the time.
const SHARE: u32 = 50;
/// A position that moves farther between two searches was set with lseek(2).
const LONGEST_READ: u64 = 64 << 20;

/// The mappings and descriptors of the files.
#[derive(Debug)]
pub struct Follower {
    pagemap: Option<File>,
    mapped: Vec<Mapped>,
    opened: Vec<Opened>,
    /// The time of the next search near the position, and the time between two of them.
    next: Instant,
    pause: Duration,
    /// The time of the next search of all mappings.
    next_all: Instant,
}

/// A part of a file that is mapped.
#[derive(Clone, Debug)]
struct Mapped {
    file: usize,
    address: u64,
    /// The bytes of the file.
    range: Range<u64>,
}

/// A descriptor of a file.
#[derive(Debug)]
struct Opened {
    file: usize,
    descriptor: String,
    /// The position at the last search; `None` before the first one.
    position: Option<u64>,
}

impl Follower {
    /// Knows nothing so far.
    pub fn new(now: Instant) -> Follower {
        Follower {
            pagemap: File::open("/proc/self/pagemap").ok(),
            mapped: Vec::new(),
            opened: Vec::new(),
            next: now,
            pause: SHORTEST,
            next_all: now,
        }
    }

    /// Returns true if the program maps one of the files, or has read it with read(2).
    pub fn sees(&self) -> bool {
        !self.mapped.is_empty() || self.opened.iter().any(|opened| opened.position > Some(0))
    }

    /// Makes the next search begin at once.
    pub fn hurry(&mut self, now: Instant) {
        (self.next, self.next_all) = (now, now);
    }

    /// The time until the next search.
    pub fn wait(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// Adds what the program has used since the last search to `files`, with its position. Does
    /// nothing before the time of the next search.
    pub fn look(&mut self, files: &mut Files, now: Instant) {
        if now < self.next {
            return;
        }
        let before = files.position;
        if now >= self.next_all {
            self.find(files);
            self.search_all(files);
            let took = now.elapsed();
            self.next_all = now + took + ALL.max(took * SHARE);
        }
        self.search_near(files);
        self.search_descriptors(files);
        self.pause = match files.position == before {
            true => (self.pause * 2).min(LONGEST),
            false => SHORTEST,
        };
        self.next = Instant::now() + self.pause;
    }

    /// Finds the mappings and descriptors of the files.
    fn find(&mut self, files: &Files) {
        // Without the page table, the use of a mapping is not seen. A process that has changed its user
        // may not read it.
        let maps = match self.pagemap {
            Some(_) => proc::read("/proc/self/maps"),
            None => Vec::new(),
        };
        let mappings = proc::lines(&maps).filter_map(Mapping::of);
        let mapped = mappings.filter_map(|mapping| {
            // On btrfs and overlayfs the device differs from that of stat(2).
            let is_same = |file: &Examined| {
                file.is(mapping.device, mapping.inode)
                    || std::fs::canonicalize(file.path())
                        .is_ok_and(|path| proc::in_maps(&path) == mapping.path)
            };
            let mut same = files.with_inode(mapping.inode);
            let (number, file) = same.find(|(_, file)| is_same(&file.examined))?;
            let len = mapping.addresses.end - mapping.addresses.start;
            let end = mapping.offset.saturating_add(len);
            Some(Mapped {
                file: number,
                address: mapping.addresses.start,
                range: mapping.offset..end.min(file.examined.size),
            })
        });
        self.mapped = mapped.filter(|mapped| !mapped.range.is_empty()).collect();
        let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
        let opened = descriptors.flatten().filter_map(|entry| {
            let descriptor = entry.file_name().into_string().ok()?;
            // A server of another file may not answer.
            let flags = AtFlags::STATX_DONT_SYNC;
            let stat = rustix::fs::statx(CWD, entry.path(), flags, StatxFlags::INO).ok()?;
            let device = (stat.stx_dev_major, stat.stx_dev_minor);
            let mut same = files.with_inode(stat.stx_ino);
            let (number, _) = same.find(|(_, file)| file.examined.is(device, stat.stx_ino))?;
            let known = |opened: &&Opened| opened.descriptor == descriptor && opened.file == number;
            let position = self
                .opened
                .iter()
                .find(known)
                .and_then(|known| known.position);
            Some(Opened {
                file: number,
                descriptor,
                position,
            })
        });
        self.opened = opened.collect();
    }

    /// Searches after the position, until several parts are not used.
    fn search_near(&self, files: &mut Files) {
        let Some(place) = files.position else { return };
        for mapped in self
            .mapped
            .iter()
            .filter(|mapped| mapped.file == place.file)
        {
            let mut unused = 0;
            for part in parts(files, mapped, place.at) {
                match self.is_used(mapped, &part) {
                    true => files.use_bytes(mapped.file, part.clone(), part.start),
                    false => unused += 1,
                }
                if unused == UNUSED_PARTS {
                    break;
                }
            }
        }
    }

    /// Searches all parts that were not used before. If there are several, the position is in the
    /// first one, or after it where the parts are used without a gap.
    fn search_all(&self, files: &mut Files) {
        let mut first = None;
        for mapped in &self.mapped {
            for part in parts(files, mapped, 0) {
                let Some(file) = files.get(mapped.file) else {
                    continue;
                };
                if file.used.contains(part.start) || !self.is_used(mapped, &part) {
                    continue;
                }
                files.use_bytes(mapped.file, part.clone(), part.start);
                let position = first.get_or_insert(files.position);
                if let Some(position) = position
                    && position.file == mapped.file
                    && position.at + (part.end - part.start) == part.start
                {
                    position.at = part.start;
                }
            }
        }
        if let Some(first) = first {
            files.position = first;
        }
    }

    /// Returns true if a page at the beginning of a part is present.
    fn is_used(&self, mapped: &Mapped, part: &Range<u64>) -> bool {
        let page = page_size();
        let from = part.start.max(mapped.range.start);
        let pages = (part.end - from).div_ceil(page).min(PAGES as u64) as usize;
        let mut entries = [0; 8 * PAGES];
        let entries = &mut entries[..8 * pages];
        let at = (mapped.address + (from - mapped.range.start)) / page * 8;
        let Some(Ok(read)) = self.pagemap.as_ref().map(|map| map.read_at(entries, at)) else {
            return false;
        };
        // Bit 63 of an entry: the page is present.
        entries[..read]
            .chunks_exact(8)
            .any(|entry| entry[7] & 0x80 != 0)
    }

    /// Follows the positions of descriptors.
    fn search_descriptors(&mut self, files: &mut Files) {
        for opened in &mut self.opened {
            let path = Path::new("/proc/self/fdinfo").join(&opened.descriptor);
            let Some(position) = proc::number_of(&proc::read(path), "pos:") else {
                continue;
            };
            // The first position may have been set.
            let last = opened.position.replace(position);
            if position != last.unwrap_or(0) {
                let moved = last.unwrap_or(position).min(position)..position;
                let is_read = moved.end - moved.start <= LONGEST_READ;
                let used = if is_read { moved } else { position..position };
                files.use_bytes(opened.file, used, position);
            }
        }
    }
}

/// The parts of a file that a mapping has, from the one with the byte `from`.
fn parts(files: &Files, mapped: &Mapped, from: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let size = files.get(mapped.file).map_or(0, |file| file.examined.size);
    let part = (size / MOST_PARTS).next_power_of_two().max(SMALLEST_PART);
    let Range { start, end } = mapped.range;
    let first = start.max(from) / part * part;
    (first..end)
        .step_by(part as usize)
        .map(move |at| at..(at + part).min(end))
}
