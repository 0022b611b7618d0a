//! One printed file: an entry of a directory, or a PATH that is not a directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nowait::scan::{DirEntry, Xattrs};
use nowait::{ErrorKind, FileType, Metadata, StatxMask};
use rustix::fs::{CWD, lgetxattr, llistxattr};
use rustix::io::Errno;

use crate::messages::Messages;

/// A file, and what is known of it.
pub struct Entry<'a> {
    /// The PATH below which the file was found.
    pub start: &'a Path,
    /// The directory of the file. `None` if the file is PATH itself.
    directory: Option<&'a Path>,
    /// The name in the directory, or PATH.
    name: &'a OsStr,
    /// 0 for a PATH, 1 for an entry of a PATH.
    pub depth: usize,
    pub inode: u64,
    /// The file type, resolved where the directory does not list it.
    pub kind: FileType,
    /// `None` if it was not queried, or the query failed.
    pub metadata: Option<&'a Metadata>,
    /// `None` if they were not queried, or the query failed.
    pub xattrs: Option<Vec<Xattr>>,
}

/// An extended attribute: its name, and its value if it may be read.
pub type Xattr = (Vec<u8>, Option<Vec<u8>>);

impl<'a> Entry<'a> {
    /// An entry of a batch, whose directory has this path. Returns `None` if the file was removed meanwhile. Errors are reported.
    pub fn found(
        start: &'a Path,
        directory: &'a Path,
        found: &'a DirEntry,
        messages: &Messages,
    ) -> Option<Entry<'a>> {
        let is_gone = |error: &nowait::Error| {
            messages.error(directory, false, error);
            error.errno() == Some(libc::ENOENT)
        };
        let metadata = match found.metadata() {
            Some(Ok(metadata)) => Some(metadata),
            Some(Err(error)) if is_gone(&error) => return None,
            _ => None,
        };
        let xattrs = match found.xattrs() {
            Some(Ok(all)) => {
                let own = |(name, value): (&OsStr, Option<&[u8]>)| {
                    (name.as_bytes().to_vec(), value.map(<[u8]>::to_vec))
                };
                Some(all.map(own).collect())
            }
            Some(Err(error)) if error.kind() == ErrorKind::Unsupported => Some(Vec::new()),
            Some(Err(error)) if is_gone(&error) => return None,
            _ => None,
        };
        let mut entry = Entry {
            start,
            directory: Some(directory),
            name: found.file_name(),
            depth: found.depth(),
            inode: found.ino(),
            kind: found.file_type(),
            metadata,
            xattrs,
        };
        if entry.kind == FileType::Unknown {
            entry.kind = file_type(&entry.path()).unwrap_or(FileType::Unknown);
        }
        Some(entry)
    }

    /// A PATH that is not a directory.
    pub fn given(
        path: &'a Path,
        metadata: &'a Metadata,
        xattrs: Xattrs,
        messages: &Messages,
    ) -> Entry<'a> {
        let xattrs = match xattrs {
            Xattrs::None => None,
            _ => all_xattrs(path)
                .map_err(|why| messages.failure(path, why))
                .ok(),
        };
        Entry {
            start: path,
            directory: None,
            name: path.as_os_str(),
            depth: 0,
            inode: metadata.ino(),
            kind: metadata.file_type(),
            metadata: Some(metadata),
            xattrs,
        }
    }

    /// The path: PATH and the names below it.
    pub fn path(&self) -> PathBuf {
        self.directory
            .map_or_else(|| self.name.into(), |directory| directory.join(self.name))
    }

    /// Appends the bytes of the path.
    pub fn write_path(&self, to: &mut Vec<u8>) {
        if let Some(directory) = self.directory {
            to.extend_from_slice(directory.as_os_str().as_bytes());
            if to.last() != Some(&b'/') {
                to.push(b'/');
            }
        }
        to.extend_from_slice(self.name.as_bytes());
    }

    /// The last component of the path.
    pub fn file_name(&self) -> &OsStr {
        match self.directory {
            Some(_) => self.name,
            None => {
                let names = self.name.as_bytes().rsplit(|&byte| byte == b'/');
                names.map(OsStr::from_bytes).next().unwrap_or(self.name)
            }
        }
    }

    /// The metadata, if these fields of it are filled in.
    pub fn metadata(&self, fields: StatxMask) -> Option<&'a Metadata> {
        self.metadata.filter(|metadata| metadata.has(fields))
    }
}

fn file_type(path: &Path) -> nowait::Result<FileType> {
    let flags = libc::AT_NO_AUTOMOUNT | libc::AT_SYMLINK_NOFOLLOW;
    Metadata::statx(CWD, path, flags, StatxMask::TYPE).map(|metadata| metadata.file_type())
}

/// The kernel's maximum for the list of names and for a value, in bytes (XATTR_LIST_MAX,
/// XATTR_SIZE_MAX).
const XATTR_MAX: usize = 64 << 10;

/// The extended attributes of a file. A symbolic link is not followed, as for the metadata.
fn all_xattrs(path: &Path) -> Result<Vec<Xattr>, Errno> {
    let mut space = vec![0; XATTR_MAX];
    let names = match llistxattr(path, &mut space[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        length => space[..length?].to_vec(),
    };
    let names = names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names
        .map(|name| {
            let value = lgetxattr(path, name, &mut space[..]);
            (
                name.to_vec(),
                value.ok().map(|length| space[..length].to_vec()),
            )
        })
        .collect())
}
