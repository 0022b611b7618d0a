//! Rotating disks. On them, two programs that read in different orders can be slower than one.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use nowait::Handle;
use nowait_ahead_channel::SEEK;
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, openat};

use crate::cached::first_waits;
use crate::directory::FLAGS;

/// The disks of a program, by `st_dev`.
#[derive(Debug, Default)]
pub struct Disks(HashMap<u64, Disk>);

/// The waits for a disk until it is decided if it seeks.
#[derive(Debug, Default)]
struct Disk {
    /// The waits of [`SEEK`] or longer.
    long: usize,
    /// The other waits.
    short: usize,
    seeks: Option<bool>,
}

/// The maximum number of disks. The events of a program may name any number.
const MAX_DISKS: usize = 1024;
/// The number of long waits, or of short ones, that decides. Most disks of virtual machines say
/// that they rotate, and a request there takes long now and then.
const MIN_WAITS: usize = 2;
/// A disk with more short waits than this for each long one does not seek. A head does not move for
/// each request.
const MAX_SHORT_PER_LONG: usize = 7;
/// The number of requests to the disk that are made for one directory.
const REQUESTS: usize = 3;
/// The number of names of a directory among which other directories are searched.
const MAX_NAMES: usize = 64;

impl Disks {
    /// Adds a call of the program that has waited. `is_long` says that it took [`SEEK`] or longer.
    pub fn add_wait(&mut self, device: u64, is_long: bool) {
        if self.0.len() >= MAX_DISKS && !self.0.contains_key(&device) {
            return;
        }
        let disk = self.0.entry(device).or_default();
        if disk.seeks.is_none() {
            disk.add(is_long);
        }
    }

    /// Returns true if it was decided that a disk seeks.
    pub fn is_known_to_seek(&self, device: u64) -> bool {
        let disk = self.0.get(&device);
        disk.is_some_and(|disk| disk.seeks == Some(true))
    }

    /// Returns true if a directory is on a disk that seeks. Returns `None` if its disk says that it
    /// rotates and too few calls have waited for it. The first decision stays: later, calls also
    /// wait for the requests that read ahead.
    pub fn seeks(&mut self, directory: &OwnedFd, device: u64) -> Option<bool> {
        let disk = self.0.entry(device).or_default();
        if disk.seeks.is_none() {
            disk.seeks = match rotates(directory) {
                true => disk.decide().or_else(|| {
                    let waits = first_waits(directory, REQUESTS);
                    waits.iter().for_each(|&wait| disk.add(wait >= SEEK));
                    disk.decide()
                }),
                false => Some(false),
            };
        }
        disk.seeks
    }

    /// Returns true if the tree below a directory is on a disk that seeks. If the directory does
    /// not decide it, the directories in it do.
    pub fn seeks_below(&mut self, directory: &OwnedFd, device: u64) -> Option<bool> {
        self.seeks(directory, device).or_else(|| {
            let names = Dir::read_from(directory).ok()?.flatten().take(MAX_NAMES);
            let mut directories = names.filter(|name| {
                let is_below = name.file_name() != c"." && name.file_name() != c"..";
                is_below && name.file_type() == FileType::Directory
            });
            directories.find_map(|name| {
                let flags = FLAGS | OFlags::NOFOLLOW;
                let below = openat(directory, name.file_name(), flags, Mode::empty()).ok()?;
                let is_there = fstat(&below).is_ok_and(|stat| stat.st_dev == device);
                is_there.then(|| self.seeks(&below, device)).flatten()
            })
        })
    }
}

impl Disk {
    fn add(&mut self, is_long: bool) {
        match is_long {
            true => self.long += 1,
            false => self.short += 1,
        }
    }

    fn decide(&self) -> Option<bool> {
        if self.long >= MIN_WAITS && self.short <= MAX_SHORT_PER_LONG * self.long {
            return Some(true);
        }
        (self.short >= MIN_WAITS).then_some(false)
    }
}

/// Returns true if the disk of a directory says that it rotates.
fn rotates(directory: &OwnedFd) -> bool {
    let handle = directory.try_clone().map(Handle::new);
    matches!(handle, Ok(Ok(it)) if it.filesystem().rotating() == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_waits_decide_unless_most_are_of_the_other_kind() {
        let decided = |long, short| {
            let seeks = None;
            Disk { long, short, seeks }.decide()
        };
        assert_eq!(decided(0, 0), None);
        assert_eq!(decided(1, 1), None);
        assert_eq!(decided(2, 0), Some(true));
        assert_eq!(decided(2, 14), Some(true));
        assert_eq!(decided(2, 15), Some(false));
        assert_eq!(decided(1, 2), Some(false));
    }

    #[test]
    fn a_disk_that_was_decided_stays_so() {
        let mut disks = Disks::default();
        let root = tempfile::tempdir().unwrap();
        let directory = OwnedFd::from(std::fs::File::open(root.path()).unwrap());
        assert!(!disks.is_known_to_seek(1));
        disks.add_wait(1, true);
        disks.add_wait(1, true);
        // A directory of no disk, such as one of tmpfs, does not rotate.
        let seeks = disks.seeks(&directory, 1).unwrap();
        (0..100).for_each(|_| disks.add_wait(1, !seeks));
        assert_eq!(disks.seeks(&directory, 1), Some(seeks));
        assert_eq!(disks.is_known_to_seek(1), seeks);
    }
}
