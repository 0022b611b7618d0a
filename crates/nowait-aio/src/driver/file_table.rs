//! The open files of the driver, by ID and by inode.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::driver::inode::Inode;
use crate::driver::open_file::OpenFile;
use crate::driver::sync_barrier::SyncBarrier;
use crate::sys::open_file;

#[derive(Default)]
pub struct FileTable {
    files: HashMap<u64, OpenFile>,
    inodes: HashMap<Inode, InodeEntry>,
    next_id: u64,
}

/// An inode with open files.
#[derive(Default)]
struct InodeEntry {
    files: Vec<u64>,
    barrier: SyncBarrier,
}

impl FileTable {
    /// The ID of the file that shares its open file description with this descriptor.
    pub fn find(&self, fd: BorrowedFd<'_>, inode: Inode) -> Option<u64> {
        let same_inode = self.inodes.get(&inode).map_or(&[][..], |i| &i.files[..]);
        let is_same = |id: &&u64| {
            let file = self.files.get(id);
            file.is_some_and(|file| open_file::is_same(file.as_fd(), fd) == Some(true))
        };
        same_inode.iter().find(is_same).copied()
    }

    /// Adds a file, and returns its ID.
    pub fn insert(&mut self, fd: OwnedFd, inode: Inode) -> Result<u64, Errno> {
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, OpenFile::new(fd, inode)?);
        self.inodes.entry(inode).or_default().files.push(id);
        Ok(id)
    }

    pub fn get(&self, id: u64) -> Option<&OpenFile> {
        self.files.get(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut OpenFile> {
        self.files.get_mut(&id)
    }

    /// A file, and the barrier of its inode.
    pub fn get_with_barrier(&mut self, id: u64) -> Option<(&mut OpenFile, &mut SyncBarrier)> {
        let file = self.files.get_mut(&id)?;
        let inode = self.inodes.get_mut(&file.inode())?;
        Some((file, &mut inode.barrier))
    }

    pub fn ids(&self) -> Vec<u64> {
        self.files.keys().copied().collect()
    }

    /// Removes a file, which is closed when it is dropped.
    pub fn remove(&mut self, id: u64) -> Option<OpenFile> {
        let file = self.files.remove(&id)?;
        if let Some(inode) = self.inodes.get_mut(&file.inode()) {
            inode.files.retain(|other| *other != id);
            if inode.files.is_empty() {
                self.inodes.remove(&file.inode());
            }
        }
        Some(file)
    }
}
