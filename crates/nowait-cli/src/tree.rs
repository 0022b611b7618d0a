//! From the paths of a command line to files: named ones, lists of names, directories with all that
//! is below them. What is no file becomes a remark, and the rest goes on.
//!
//! ```text
//!  Paths ─► visit: one file after the other ─────────────────────────────────► each
//!             └─ look: batches ─► threads: look(file) ─► in the order of visit ─► take
//! ```
//! Memory does not grow with the number of files: what is kept are the directories still to be
//! listed and a bounded number of batches. Nothing is opened here but directories.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use crate::remark::Remarks;

mod parallel;

/// The words by which every verb takes its files.
#[derive(Debug, clap::Args)]
pub struct Paths {
    /// Files, and with -r directories; symbolic links given here are followed
    #[arg(value_name = "PATH", required_unless_present = "files0_from")]
    paths: Vec<PathBuf>,

    /// Take directories with all that is below them; symbolic links in there are not followed
    #[arg(short, long)]
    recursive: bool,

    /// With -r: stay on the filesystem of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Take the paths from FILE, each ended by a NUL byte (as `find -print0` writes them); `-` is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    files0_from: Option<PathBuf>,
}

/// A regular file that was found. It may be gone, or be something else, when it is opened.
#[derive(Debug)]
pub struct Found {
    /// As people would write it: below the path of the command line.
    pub path: PathBuf,
    /// Its inode's number, for whoever wants to go by that; two filesystems may share one.
    pub inode: u64,
    /// Whether its very path was given, and not that of a directory above it.
    pub named: bool,
}

impl Found {
    /// The flags to open it with for reading: never waits for the other end of a fifo and follows
    /// no link but a named one, whatever the path has become.
    pub fn flags(&self) -> OFlags {
        let follow = if self.named {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | follow
    }

    /// Opens it for reading, and leaves the access time as it is where it may.
    pub fn open(&self) -> rustix::io::Result<File> {
        let open = |flags| rustix::fs::open(&self.path, flags, Mode::empty());
        // O_NOATIME is for the file's owner alone.
        let fd = match open(self.flags() | OFlags::NOATIME) {
            Err(Errno::PERM) => open(self.flags()),
            other => other,
        }?;
        Ok(fd.into())
    }

    /// Remarks on why it could not be dealt with: what vanishes below a directory is no failure.
    pub fn failed(&self, remarks: &Remarks, why: Errno) {
        failed(remarks, &self.path, self.named, why);
    }
}

impl Paths {
    /// Whether a file could be met twice without having two names.
    pub fn may_overlap(&self) -> bool {
        self.files0_from.is_some() || self.paths.len() > 1
    }

    /// Calls `each` for every file, one after the other, until it returns an error.
    pub fn visit<E>(
        &self,
        remarks: &Remarks,
        mut each: impl FnMut(Found) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut walk = Walk {
            paths: self,
            remarks,
            buffer: Vec::with_capacity(LISTING),
            each: &mut each,
        };
        match &self.files0_from {
            None => self.paths.iter().try_for_each(|path| walk.named(path)),
            Some(list) => walk.list(list),
        }
    }
}

/// How many bytes of a directory are asked for at once.
const LISTING: usize = 128 << 10;

/// No path that the kernel takes is longer, NUL included.
const PATH_MAX: u64 = 4096;

/// One visit.
struct Walk<'a, E> {
    paths: &'a Paths,
    remarks: &'a Remarks,
    buffer: Vec<u8>,
    each: &'a mut dyn FnMut(Found) -> Result<(), E>,
}

impl<E> Walk<'_, E> {
    /// All paths of a list, as they come.
    fn list(&mut self, list: &Path) -> Result<(), E> {
        let open = || -> io::Result<Box<dyn Read>> {
            if list == "-" {
                return Ok(Box::new(io::stdin()));
            }
            Ok(Box::new(File::open(list)?))
        };
        let mut names = match open() {
            Ok(input) => BufReader::new(input),
            Err(e) => {
                self.remarks
                    .failure(list, format_args!("cannot read this list: {e}"));
                return Ok(());
            }
        };
        let mut name = Vec::new();
        for number in 1u64.. {
            name.clear();
            match (&mut names).take(PATH_MAX).read_until(0, &mut name) {
                Ok(0) => break,
                Ok(_) if name.last() == Some(&0) => _ = name.pop(),
                // A last name may do without its NUL.
                Ok(n) if (n as u64) < PATH_MAX => {}
                Ok(_) => {
                    let why = format_args!("name {number} is longer than any path: left out");
                    self.remarks.failure(list, why);
                    if names.skip_until(0).is_err() {
                        break;
                    }
                    continue;
                }
                Err(e) => {
                    self.remarks
                        .failure(list, format_args!("cannot read on: {e}"));
                    break;
                }
            }
            if name.is_empty() {
                self.remarks
                    .failure(list, format_args!("name {number} is empty: left out"));
                continue;
            }
            self.named(Path::new(OsStr::from_bytes(&name)))?;
        }
        Ok(())
    }

    /// A path that somebody has written.
    fn named(&mut self, path: &Path) -> Result<(), E> {
        let stat = match std::fs::metadata(path) {
            Ok(stat) => stat,
            Err(e) => {
                self.remarks.failure(path, e);
                return Ok(());
            }
        };
        let kind = stat.file_type();
        if kind.is_file() {
            return (self.each)(Found {
                path: path.to_path_buf(),
                inode: stat.ino(),
                named: true,
            });
        }
        if kind.is_dir() && self.paths.recursive {
            return self.tree(path, stat.dev());
        }
        let what = if kind.is_dir() {
            "is a directory: -r takes all that is below it"
        } else if kind.is_fifo() {
            "is a fifo, not a regular file"
        } else if kind.is_socket() {
            "is a socket, not a regular file"
        } else {
            "is a device, not a regular file"
        };
        self.remarks.failure(path, what);
        Ok(())
    }

    /// All that is below a directory: its files, then what is below its directories, in the order
    /// in which the filesystem lists them.
    fn tree(&mut self, root: &Path, device: u64) -> Result<(), E> {
        let mut pending = vec![root.to_path_buf()];
        while let Some(path) = pending.pop() {
            let first = pending.len();
            self.directory(&path, path == root, device, &mut pending)?;
            // The next to be popped is the first that was listed.
            pending[first..].reverse();
        }
        Ok(())
    }

    /// The files of one directory; its directories are added to `below`.
    fn directory(
        &mut self,
        path: &Path,
        is_root: bool,
        device: u64,
        below: &mut Vec<PathBuf>,
    ) -> Result<(), E> {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if !is_root {
            flags |= OFlags::NOFOLLOW;
        }
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(e) => {
                failed(self.remarks, path, is_root, e);
                return Ok(());
            }
        };
        if self.paths.one_file_system && rustix::fs::fstat(&fd).is_ok_and(|s| s.st_dev != device) {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut entries = RawDir::new(&fd, buffer.spare_capacity_mut());
        let mut outcome = Ok(());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    failed(self.remarks, path, is_root, e);
                    break;
                }
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let below_path = join(path, name);
            // Not every filesystem lists what its entries are.
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    match rustix::fs::statat(CWD, &below_path, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(e) => {
                            failed(self.remarks, &below_path, false, e);
                            continue;
                        }
                    }
                }
                kind => kind,
            };
            match kind {
                FileType::Directory => below.push(below_path),
                FileType::RegularFile => {
                    outcome = (self.each)(Found {
                        path: below_path,
                        inode: entry.ino(),
                        named: false,
                    });
                    if outcome.is_err() {
                        break;
                    }
                }
                // Links are not followed here, and nobody has asked for fifos by name.
                _ => {}
            }
        }
        self.buffer = buffer;
        outcome
    }
}

/// Remarks on a path that could not be dealt with. What is not there any more, or is something else
/// now, is a failure only if it was asked for by its name.
fn failed(remarks: &Remarks, path: &Path, named: bool, why: Errno) {
    match why {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP if !named => {
            remarks.note(path, "vanished meanwhile");
        }
        _ => remarks.failure(path, why),
    }
}

/// `directory/name`, in one allocation.
fn join(directory: &Path, name: &OsStr) -> PathBuf {
    let directory = directory.as_os_str().as_bytes();
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    PathBuf::from(std::ffi::OsString::from_vec(path))
}
