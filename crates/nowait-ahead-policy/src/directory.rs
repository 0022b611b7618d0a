//! A directory: its identity, how it is opened, and its listing.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nowait::walk::open_beneath;
use nowait_ahead_channel::LARGE;
use rustix::fs::{Mode, OFlags, RawDir, fstat, fstatfs, openat};

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

/// The positions of the first names of a directory in its listing, by inode number. `path` is below `root`.
pub fn positions(root: &OwnedFd, path: &Path, max: usize) -> HashMap<u64, u32> {
    let directory = match path.as_os_str().is_empty() {
        true => reopen(root),
        false => open_beneath(root, path, FLAGS).ok(),
    };
    let mut positions = HashMap::new();
    let Some(directory) = directory else {
        return positions;
    };
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut names = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = names.next()
        && positions.len() < max
    {
        positions.insert(entry.ino(), positions.len() as u32);
    }
    positions
}

/// Returns false for filesystems without a disk, such as proc(5) and tmpfs(5); see statfs(2).
pub fn is_on_disk(fd: impl AsFd) -> bool {
    const PSEUDO: [u32; 12] = [
        0x0000_9fa0, // proc
        0x6265_6572, // sysfs
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x0000_1cd1, // devpts
        0x0000_0187, // autofs
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x7363_6673, // securityfs
        0xcafe_4a11, // bpf
    ];
    fstatfs(fd).is_ok_and(|stat| !PSEUDO.contains(&(stat.f_type as u32)))
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
