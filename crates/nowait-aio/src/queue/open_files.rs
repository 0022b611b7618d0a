//! The open files that the driver has, as callers know them: by the program's descriptors, with the
//! number of requests in flight on each.

use std::collections::HashMap;
use std::os::fd::RawFd;

#[derive(Debug, Default)]
pub struct OpenFiles {
    /// The file that each of the program's descriptors referred to when a request last used it.
    by_fildes: HashMap<RawFd, u64>,
    files: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The descriptor in the driver's table.
    number: RawFd,
    /// The program's descriptor.
    fildes: RawFd,
    requests: usize,
}

impl OpenFiles {
    /// Adds a file with its first request.
    pub fn insert(&mut self, id: u64, number: RawFd, fildes: RawFd) {
        self.by_fildes.insert(fildes, id);
        let entry = Entry {
            number,
            fildes,
            requests: 1,
        };
        self.files.insert(id, entry);
    }

    /// Counts a request on a file that was passed again.
    pub fn add_request(&mut self, id: u64, fildes: RawFd) {
        self.by_fildes.insert(fildes, id);
        if let Some(entry) = self.files.get_mut(&id) {
            entry.requests += 1;
        }
    }

    /// Counts a request on the file that the program's descriptor last referred to, and returns the
    /// ID of the file. `None` if there is no such file, or if the descriptor now refers to another
    /// one. `is_same` compares it with a descriptor of the driver's table.
    pub fn add_request_by_fildes(
        &mut self,
        fildes: RawFd,
        is_same: impl FnOnce(RawFd) -> bool,
    ) -> Option<u64> {
        let id = *self.by_fildes.get(&fildes)?;
        let entry = self.files.get_mut(&id)?;
        is_same(entry.number).then(|| {
            entry.requests += 1;
            id
        })
    }

    /// Counts a request that is done. True if it was the last one: the driver closes the file.
    pub fn remove_request(&mut self, id: u64) -> bool {
        let Some(entry) = self.files.get_mut(&id) else {
            return false;
        };
        entry.requests -= 1;
        let is_last = entry.requests == 0;
        if is_last {
            if self.by_fildes.get(&entry.fildes) == Some(&id) {
                self.by_fildes.remove(&entry.fildes);
            }
            self.files.remove(&id);
        }
        is_last
    }
}
