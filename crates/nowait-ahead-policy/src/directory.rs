//! A directory: its identity, and how it is opened.

use std::os::fd::{AsFd, OwnedFd};

use nowait_ahead_channel::LARGE;
use rustix::fs::{Mode, OFlags, fstat, openat};

/// Device and inode number (`st_dev`, `st_ino`).
pub type Id = (u64, u64);

/// The flags that open a directory. With O_DIRECTORY no FIFO and no device is opened.
pub const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct OpenDirectory {
    /// The descriptor.
    pub fd: OwnedFd,
    /// The identity.
    pub id: Id,
    /// Listing it takes many requests to the disk.
    pub is_large: bool,
}

impl OpenDirectory {
    /// Asks for the identity of an open directory.
    pub fn new(fd: OwnedFd) -> Option<OpenDirectory> {
        let stat = fstat(&fd).ok()?;
        Some(OpenDirectory {
            fd,
            id: (stat.st_dev, stat.st_ino),
            is_large: stat.st_size >= LARGE,
        })
    }

    /// The directory above, if there is one on the same filesystem.
    pub fn parent(&self) -> Option<OpenDirectory> {
        let parent = OpenDirectory::new(openat(&self.fd, "..", FLAGS, Mode::empty()).ok()?)?;
        (parent.id.0 == self.id.0 && parent.id != self.id).then_some(parent)
    }
}

/// Opens a directory again, with a position of its own, so that both descriptors can be listed.
pub fn reopen(directory: impl AsFd) -> Option<OwnedFd> {
    openat(directory, ".", FLAGS, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::fs::{CWD, Dir};

    /// A duplicate of the descriptor would share the position: each would get a part of the names.
    #[test]
    fn a_directory_is_listed_twice_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..100 {
            std::fs::write(dir.path().join(name.to_string()), "").unwrap();
        }
        let fd = openat(CWD, dir.path(), FLAGS, Mode::empty()).unwrap();
        let again = reopen(&fd).unwrap();
        for fd in [fd, again] {
            assert_eq!(Dir::new(fd).unwrap().count(), 102);
        }
    }
}
