//! One name as it is shown: an entry of a directory, or a file that was named.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nowait::FileType;
use nowait::Metadata;
use nowait::StatxMask;
use nowait::scan::{DirEntry, Xattrs};
use rustix::fs::{CWD, getxattr, lgetxattr, listxattr, llistxattr};
use rustix::io::Errno;

use crate::messages::Messages;

/// A name and what is known of the file behind it.
pub struct Row<'a> {
    /// Where it is; `None` if the name is the path that was given.
    directory: Option<&'a Path>,
    pub name: &'a OsStr,
    pub inode: u64,
    pub kind: FileType,
    /// `None`: nobody has asked, or it can't be had.
    pub stat: Option<&'a Metadata>,
    /// `None`: nobody has asked, or they can't be had.
    pub xattrs: Option<Vec<Xattr<'a>>>,
}

/// An extended attribute.
#[derive(Clone, Copy)]
pub struct Xattr<'a> {
    pub name: &'a [u8],
    /// `None`: it is there, and its value may not be read.
    pub value: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    /// Of an entry; `None` if it has gone meanwhile. Messages on what could not be had.
    pub fn new(directory: &'a Path, entry: &'a DirEntry, messages: &Messages) -> Option<Row<'a>> {
        let gone = |error: &nowait::Error| {
            messages.error(directory, false, error);
            error.errno() == Some(Errno::NOENT.raw_os_error())
        };
        let stat = match entry.metadata() {
            Some(Ok(stat)) => Some(stat),
            Some(Err(error)) if gone(&error) => return None,
            _ => None,
        };
        let xattrs = match entry.xattrs() {
            None => None,
            Some(Ok(found)) => Some(found.map(Xattr::from).collect()),
            // A filesystem that has none.
            Some(Err(error)) if error.errno() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                Some(Vec::new())
            }
            Some(Err(error)) if gone(&error) => return None,
            Some(Err(_)) => None,
        };
        Some(Row {
            directory: Some(directory),
            name: entry.file_name(),
            inode: entry.ino(),
            kind: entry.file_type(),
            stat,
            xattrs,
        })
    }

    /// Its path, below the one that was given.
    pub fn path(&self) -> Cow<'a, Path> {
        match self.directory {
            Some(directory) => directory.join(self.name).into(),
            None => Path::new(self.name).into(),
        }
    }

    /// Whether it is a directory. Not every filesystem lists what its entries are.
    pub fn is_directory(&self) -> bool {
        let look = || Named::look(&self.path(), false, Xattrs::None).map(|named| named.kind());
        match self.kind {
            FileType::Unknown => look() == Ok(FileType::Dir),
            kind => kind == FileType::Dir,
        }
    }

    /// What a link leads to; `None` if it is none, or can't be read.
    pub fn target(&self, messages: &Messages) -> Option<PathBuf> {
        if self.kind != FileType::Symlink {
            return None;
        }
        let path = self.path();
        match std::fs::read_link(&path) {
            Ok(target) => Some(target),
            Err(why) => {
                messages.failure(&path, format_args!("cannot read where it leads: {why}"));
                None
            }
        }
    }
}

impl<'a> From<(&'a OsStr, Option<&'a [u8]>)> for Xattr<'a> {
    fn from((name, value): (&'a OsStr, Option<&'a [u8]>)) -> Xattr<'a> {
        let name = name.as_bytes();
        Xattr { name, value }
    }
}

/// A file that was named.
pub struct Named<'a> {
    path: &'a Path,
    stat: Metadata,
    xattrs: Option<Vec<OwnXattr>>,
}

/// Name and value.
type OwnXattr = (Vec<u8>, Option<Vec<u8>>);

impl<'a> Named<'a> {
    /// Asks about it, or with `follow` about what a link leads to.
    pub fn look(path: &'a Path, follow: bool, xattrs: Xattrs) -> Result<Named<'a>, Errno> {
        let nofollow = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let flags = libc::AT_NO_AUTOMOUNT | nofollow;
        let stat = match Metadata::statx(CWD, path, flags, StatxMask::BASIC_STATS) {
            // A link that leads nowhere is there all the same.
            Err(error) if follow && matches!(error.errno(), Some(libc::ENOENT | libc::ELOOP)) => {
                return Named::look(path, false, xattrs);
            }
            Err(error) => {
                return Err(Errno::from_raw_os_error(error.errno().unwrap_or(libc::EIO)));
            }
            Ok(stat) => stat,
        };
        let xattrs = match xattrs {
            Xattrs::None => None,
            _ => Some(all_xattrs(path, follow)?),
        };
        Ok(Named { path, stat, xattrs })
    }

    /// What kind of file it is.
    pub fn kind(&self) -> FileType {
        self.stat.file_type()
    }

    /// As it is shown.
    pub fn row(&self) -> Row<'_> {
        fn xattr((name, value): &OwnXattr) -> Xattr<'_> {
            let value = value.as_deref();
            Xattr { name, value }
        }
        Row {
            directory: None,
            name: self.path.as_os_str(),
            inode: self.stat.ino(),
            kind: self.kind(),
            stat: Some(&self.stat),
            xattrs: self
                .xattrs
                .as_ref()
                .map(|all| all.iter().map(xattr).collect()),
        }
    }
}

/// As large as the kernel lets the list of names, and each value, be.
const XATTR_MAX: usize = 64 << 10;

fn all_xattrs(path: &Path, follow: bool) -> Result<Vec<OwnXattr>, Errno> {
    let mut room = vec![0; XATTR_MAX];
    let listed = match follow {
        true => listxattr(path, &mut room[..]),
        false => llistxattr(path, &mut room[..]),
    };
    let names = match listed {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        length => room[..length?].to_vec(),
    };
    let own = |name: &[u8]| {
        let value = match follow {
            true => getxattr(path, name, &mut room[..]),
            false => lgetxattr(path, name, &mut room[..]),
        };
        let value = value.ok().map(|length| room[..length].to_vec());
        (name.to_vec(), value)
    };
    let names = names.split(|byte| *byte == 0);
    Ok(names.filter(|name| !name.is_empty()).map(own).collect())
}
