//! A directory of a path: its regular files and the names of the directories in it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir as Listing, FileType, Stat};
use rustix::io::Errno;

use super::entry::Entry;

/// A change of a directory within this time after it was listed may leave its time stamp as it was.
const TICK: Duration = Duration::from_secs(2);

/// A directory, and its regular files.
#[derive(Debug, Default)]
pub struct Directory {
    /// Device and inode number.
    pub id: (u64, u64),
    /// The modification time; `None` if a later change may have the same one.
    modified: Option<(i64, i64)>,
    /// The number of its watch.
    pub watch: Option<i32>,
    /// The names of the directories in it, in order.
    pub below: Vec<OsString>,
    /// Boxed, because a map has room for eleven values, and a given file has a map of its own.
    pub files: BTreeMap<OsString, Box<Entry>>,
}

impl Directory {
    /// Returns true if the directory has the same names as when it was listed.
    pub fn is_unchanged(&self, stat: &Stat) -> bool {
        self.id == id(stat) && self.modified == Some(modified(stat))
    }

    /// Forgets the watch. The directory is watched again when it is listed again.
    pub fn unwatched(&mut self) {
        self.watch = None;
        self.modified = None;
    }

    /// Takes over the names of a listing. Files with the same names stay.
    pub fn listed(&mut self, stat: &Stat, names: Names) {
        self.id = id(stat);
        self.modified = is_settled(stat).then(|| modified(stat));
        self.below = names.below;
        let files = &names.files;
        self.files
            .retain(|name, _| files.binary_search(name).is_ok());
        for name in names.files {
            self.files.entry(name).or_default();
        }
    }
}

/// Device and inode number.
pub fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn modified(stat: &Stat) -> (i64, i64) {
    (stat.st_mtime, stat.st_mtime_nsec as i64)
}

/// Returns true if a later change has another time stamp.
fn is_settled(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let limit = now.unwrap_or_default().saturating_sub(TICK);
    stat.st_mtime < limit.as_secs() as i64
}

/// The names in a directory, in order.
pub struct Names {
    /// Regular files.
    files: Vec<OsString>,
    /// Directories.
    pub below: Vec<OsString>,
}

impl Names {
    /// Lists a directory.
    ///
    /// # Errors
    /// Of getdents64(2).
    pub fn of(directory: OwnedFd) -> Result<Names, Errno> {
        let (mut files, mut below) = (Vec::new(), Vec::new());
        let mut listing = Listing::new(directory)?;
        while let Some(entry) = listing.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&listing, name),
                kind => kind,
            };
            match kind {
                FileType::RegularFile => files.push(name.to_owned()),
                FileType::Directory => below.push(name.to_owned()),
                // Links are not followed here.
                _ => {}
            }
        }
        files.sort_unstable();
        below.sort_unstable();
        Ok(Names { files, below })
    }
}

/// The type of a file, on filesystems whose directories have no types.
fn kind_of(listing: &Listing, name: &OsStr) -> FileType {
    let stat = listing.fd().and_then(|directory| {
        rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    });
    stat.map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}
