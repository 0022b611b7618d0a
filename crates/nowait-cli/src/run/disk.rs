//! Disks on which two that read in different orders are slower than one.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use nowait::Handle;
use nowait_ahead_channel::SEEK;

use super::cached::waits;

/// The disks of a program, by `st_dev`.
#[derive(Debug, Default)]
pub struct Disks(HashMap<u64, Disk>);

#[derive(Debug, Default)]
struct Disk {
    /// The calls of the program that waited as long as a seek takes, until it was decided if the disk seeks.
    long_waits: usize,
    seeks: Option<bool>,
}

/// The number of such waits from which a disk that says it rotates does so. Most disks of virtual machines say that they
/// rotate, and now and then a request takes long there.
const ENOUGH: usize = 2;
/// The number of requests that a disk is asked for.
const REQUESTS: usize = 3;

impl Disks {
    /// Takes note of a call of the program that waited as long as a seek takes.
    pub fn long_wait(&mut self, device: u64) {
        self.0.entry(device).or_default().long_waits += 1;
    }

    /// Returns true if it was decided that a disk seeks.
    pub fn is_known_to_seek(&self, device: u64) -> bool {
        self.0
            .get(&device)
            .is_some_and(|disk| disk.seeks == Some(true))
    }

    /// Returns true if a directory is on a disk that seeks. This is decided once, at the first directory that is not cached: later
    /// a call also waits for requests that read ahead.
    pub fn seeks(&mut self, directory: &OwnedFd, device: u64) -> bool {
        let disk = self.0.entry(device).or_default();
        if disk.seeks.is_none() {
            disk.seeks = disk.decide(directory);
        }
        disk.seeks == Some(true)
    }
}

impl Disk {
    /// `None` if it cannot be decided yet.
    fn decide(&self, directory: &OwnedFd) -> Option<bool> {
        let rotating = Handle::new(directory.try_clone().ok()?)
            .ok()?
            .filesystem()
            .rotating();
        if rotating != Some(true) || self.long_waits >= ENOUGH {
            return rotating.or(Some(false));
        }
        let waits = waits(directory, REQUESTS);
        let long = waits.iter().filter(|&&wait| wait >= SEEK).count();
        (!waits.is_empty()).then_some(self.long_waits + long >= ENOUGH)
    }
}
