//! A directory of a path: its regular files and the names of the directories in it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nowait::scan::Dir;
use rustix::fs::{AtFlags, FileType, RawDir, Stat};
use rustix::io::Errno;

use super::entry::Entry;

/// A change of a directory within this time after it was listed may leave its time stamp as it was.
const TICK: Duration = Duration::from_secs(2);

/// The bytes of names that are listed at once.
const BUFFER: usize = 32 << 10;

/// The number of a directory of a path.
pub type Number = u64;

/// A directory of a path. It may be gone.
#[derive(Clone, Debug, Default)]
pub struct Location {
    pub number: Number,
    /// The directory as files are opened in it; `None` for that of a given file.
    pub dir: Option<Arc<Dir>>,
}

/// A name of a directory in a directory.
#[derive(Debug)]
pub struct Below {
    pub name: OsString,
    /// `None` before it is listed, and if it cannot be.
    pub number: Option<Number>,
}

/// A directory, and its regular files.
#[derive(Debug, Default)]
pub struct Directory {
    pub location: Location,
    /// `None` for that of the path.
    pub parent: Option<Number>,
    /// The modification time; `None` if a later change may have the same one.
    modified: Option<(i64, i64)>,
    /// The number of its watch.
    pub watch: Option<i32>,
    /// The directories in it, in the order of their names.
    pub below: Vec<Below>,
    /// Boxed, because a map has room for eleven values, and a given file has a map of its own.
    pub files: BTreeMap<OsString, Box<Entry>>,
}

impl Directory {
    /// Returns true if the directory has the same names as when it was listed.
    pub fn is_unchanged(&self, stat: &Stat) -> bool {
        let id = self.location.dir.as_ref().map(|dir| dir.id());
        id == Some((stat.st_dev, stat.st_ino)) && self.modified == Some(modified(stat))
    }

    /// The index of the name of a directory in it, or the one where the name belongs.
    pub fn find(&self, name: &OsStr) -> Result<usize, usize> {
        self.below.binary_search_by(|below| (*below.name).cmp(name))
    }

    /// The directory with this name in it.
    pub fn below(&self, name: &OsStr) -> Option<&Below> {
        self.find(name).ok().map(|at| &self.below[at])
    }

    /// Forgets the watch. The directory is watched again when it is listed again.
    pub fn unwatched(&mut self) {
        self.watch = None;
        self.modified = None;
    }

    /// Takes over the names of a listing. Files and directories with the same names stay. Returns the
    /// directories that are gone.
    pub fn listed(&mut self, stat: &Stat, names: Names) -> Vec<Number> {
        self.modified = is_settled(stat).then(|| modified(stat));
        let below = names.below.into_iter();
        let below = below.map(|name| Below { name, number: None });
        let before = std::mem::replace(&mut self.below, below.collect());
        let mut gone = Vec::new();
        for Below { name, number } in before {
            match self.find(&name) {
                Ok(at) => self.below[at].number = number,
                Err(_) => gone.extend(number),
            }
        }
        let files = &names.files;
        self.files
            .retain(|name, _| files.binary_search(name).is_ok());
        for name in names.files {
            self.files.entry(name).or_default();
        }
        gone
    }
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
    below: Vec<OsString>,
}

impl Names {
    /// Lists a directory that was just opened.
    ///
    /// # Errors
    /// Of getdents64(2).
    pub fn of(directory: impl AsFd) -> Result<Names, Errno> {
        let (mut files, mut below) = (Vec::new(), Vec::new());
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut listing = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(directory.as_fd(), name),
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
fn kind_of(directory: BorrowedFd<'_>, name: &OsStr) -> FileType {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}
