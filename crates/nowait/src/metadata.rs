//! Metadata of files: statx(2), with the names of the standard library.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp};

use crate::error::{Error, Result};
use crate::sys::retry;
use crate::sys::stat::Known;

bitflags::bitflags! {
    /// The fields of a file's [`Metadata`] to ask for: `STATX_*` of statx(2). A filesystem may fill
    /// in more than it was asked for, or less.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct StatxMask: u32 {
        /// The type of the file.
        const TYPE = 0x1;
        /// The permission bits.
        const MODE = 0x2;
        /// The number of hard links.
        const NLINK = 0x4;
        /// The user that owns the file.
        const UID = 0x8;
        /// The group that owns the file.
        const GID = 0x10;
        /// The time of the last access.
        const ATIME = 0x20;
        /// The time of the last change of the contents.
        const MTIME = 0x40;
        /// The time of the last change of the inode.
        const CTIME = 0x80;
        /// The inode number.
        const INO = 0x100;
        /// The size in bytes.
        const SIZE = 0x200;
        /// The allocated blocks of 512 bytes.
        const BLOCKS = 0x400;
        /// All of the above: the fields of stat(2).
        const BASIC_STATS = 0x7ff;
        /// The time of creation.
        const BTIME = 0x800;
        /// The ID of the mount (5.8).
        const MNT_ID = 0x1000;
        const _ = !0;
    }
}

/// The type of a file.
///
/// The standard library's [`FileTypeExt`] has the tests for FIFOs, sockets and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A FIFO (named pipe).
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// The directory does not tell (`DT_UNKNOWN`), or the type is none of the others.
    Unknown,
}

impl FileType {
    /// True for a regular file.
    pub fn is_file(self) -> bool {
        self == FileType::File
    }

    /// True for a directory.
    pub fn is_dir(self) -> bool {
        self == FileType::Dir
    }

    /// True for a symbolic link.
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }
}

impl FileTypeExt for FileType {
    fn is_block_device(&self) -> bool {
        *self == FileType::BlockDevice
    }

    fn is_char_device(&self) -> bool {
        *self == FileType::CharDevice
    }

    fn is_fifo(&self) -> bool {
        *self == FileType::Fifo
    }

    fn is_socket(&self) -> bool {
        *self == FileType::Socket
    }
}

impl From<rustix::fs::FileType> for FileType {
    fn from(kind: rustix::fs::FileType) -> FileType {
        match kind {
            rustix::fs::FileType::RegularFile => FileType::File,
            rustix::fs::FileType::Directory => FileType::Dir,
            rustix::fs::FileType::Symlink => FileType::Symlink,
            rustix::fs::FileType::Fifo => FileType::Fifo,
            rustix::fs::FileType::Socket => FileType::Socket,
            rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
            rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
            _ => FileType::Unknown,
        }
    }
}

/// The metadata of a file: the answer of statx(2) (4.11).
///
/// Only the fields in [`mask`](Metadata::mask) are filled in. The others are 0. The standard
/// library's [`MetadataExt`] has the fields of stat(2), such as [`ino`](MetadataExt::ino).
///
/// ```
/// use std::os::unix::fs::MetadataExt;
///
/// use nowait::StatxMask;
/// let scan = nowait::scan::Options::new()
///     .metadata(StatxMask::BASIC_STATS)
///     .blocking_open("src")?;
/// for entry in scan {
///     let entry = entry?;
///     if let Some(metadata) = entry.metadata() {
///         let metadata = metadata?;
///         println!("{} bytes, inode {}", metadata.len(), metadata.ino());
///     }
/// }
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
#[allow(clippy::len_without_is_empty, reason = "as the standard library's")]
pub struct Metadata(rustix::fs::Statx);

impl Metadata {
    pub(crate) fn new(statx: rustix::fs::Statx) -> Metadata {
        Metadata(statx)
    }

    /// The properties that are known without asking a server. The mount is that of a request for
    /// [`MNT_ID_UNIQUE`](crate::sys::stat::MNT_ID_UNIQUE).
    pub(crate) fn known(&self) -> Known {
        Known::of(&self.0)
    }

    /// Calls statx(2) for the file at `path`, relative to `directory`. Blocks.
    ///
    /// `int statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *buf)`.
    /// The flags are `AT_SYMLINK_NOFOLLOW` and so on. With `AT_EMPTY_PATH` and an empty path it is
    /// the metadata of `directory` itself, which may be any open file.
    ///
    /// # Errors
    /// The errors of statx(2), with the path.
    ///
    /// ```
    /// use nowait::{Metadata, StatxMask};
    /// let directory = std::fs::File::open("src")?;
    /// let metadata = Metadata::statx(&directory, "lib.rs", 0, StatxMask::BASIC_STATS)?;
    /// assert!(metadata.is_file() && metadata.len() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn statx(
        directory: impl AsFd,
        path: impl AsRef<Path>,
        flags: i32,
        mask: StatxMask,
    ) -> Result<Metadata> {
        let path = path.as_ref();
        let flags = AtFlags::from_bits_retain(flags.cast_unsigned());
        let mask = StatxFlags::from_bits_retain(mask.bits());
        let ask = || rustix::fs::statx(&directory, path, flags, mask);
        let failed = |errno| Error::os("statx", errno).on(Some(&path.into()));
        retry::interrupted(ask).map(Metadata).map_err(failed)
    }

    /// The bytes of the kernel's `struct statx`, for interfaces of other languages.
    pub fn as_bytes(&self) -> &[u8] {
        let start = (&raw const self.0).cast::<u8>();
        // SAFETY: `struct statx` consists of integers without padding between them, and the kernel
        // fills all of it.
        unsafe { std::slice::from_raw_parts(start, size_of_val(&self.0)) }
    }

    /// The fields that are filled in.
    pub fn mask(&self) -> StatxMask {
        StatxMask::from_bits_retain(self.0.stx_mask)
    }

    /// True if these fields are filled in.
    pub fn has(&self, fields: StatxMask) -> bool {
        self.mask().contains(fields)
    }

    /// The type of the file. [`FileType::Unknown`] if it is not filled in.
    pub fn file_type(&self) -> FileType {
        if self.has(StatxMask::TYPE) {
            rustix::fs::FileType::from_raw_mode(self.mode()).into()
        } else {
            FileType::Unknown
        }
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The size in bytes.
    pub fn len(&self) -> u64 {
        self.0.stx_size
    }

    /// The time of the last change of the contents.
    ///
    /// # Errors
    /// `Unsupported` if it is not filled in.
    pub fn modified(&self) -> io::Result<SystemTime> {
        self.time(StatxMask::MTIME, self.0.stx_mtime)
    }

    /// The time of the last access.
    ///
    /// # Errors
    /// `Unsupported` if it is not filled in.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        self.time(StatxMask::ATIME, self.0.stx_atime)
    }

    /// The time of creation.
    ///
    /// # Errors
    /// `Unsupported` if it is not filled in: not asked for, or unknown to the filesystem.
    pub fn created(&self) -> io::Result<SystemTime> {
        self.time(StatxMask::BTIME, self.0.stx_btime)
    }

    fn time(&self, field: StatxMask, time: StatxTimestamp) -> io::Result<SystemTime> {
        if !self.has(field) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
        let start = if time.tv_sec < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(seconds)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(seconds)
        };
        start
            .and_then(|start| start.checked_add(Duration::from_nanos(time.tv_nsec.into())))
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

macro_rules! fields {
    ($($name:ident: $type:ty = |$stat:ident| $value:expr;)*) => {$(
        fn $name(&self) -> $type {
            let $stat = &self.0;
            $value
        }
    )*};
}

/// `dev`, `rdev` and `blksize` are filled in whatever the [`mask`](Metadata::mask).
impl MetadataExt for Metadata {
    fields! {
        dev: u64 = |stat| rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        ino: u64 = |stat| stat.stx_ino;
        mode: u32 = |stat| stat.stx_mode.into();
        nlink: u64 = |stat| stat.stx_nlink.into();
        uid: u32 = |stat| stat.stx_uid;
        gid: u32 = |stat| stat.stx_gid;
        rdev: u64 = |stat| rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
        size: u64 = |stat| stat.stx_size;
        atime: i64 = |stat| stat.stx_atime.tv_sec;
        atime_nsec: i64 = |stat| stat.stx_atime.tv_nsec.into();
        mtime: i64 = |stat| stat.stx_mtime.tv_sec;
        mtime_nsec: i64 = |stat| stat.stx_mtime.tv_nsec.into();
        ctime: i64 = |stat| stat.stx_ctime.tv_sec;
        ctime_nsec: i64 = |stat| stat.stx_ctime.tv_nsec.into();
        blksize: u64 = |stat| stat.stx_blksize.into();
        blocks: u64 = |stat| stat.stx_blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::TestFile;

    #[test]
    #[cfg_attr(miri, ignore = "Miri's statx fills in a part of the structure")]
    fn it_is_what_the_standard_library_says() {
        let test = TestFile::new();
        for path in [
            test.path.as_path(),
            Path::new("/"),
            Path::new("/dev/null"),
            Path::new("/proc/self"),
        ] {
            let ours = rustix::fs::statx(
                rustix::fs::CWD,
                path,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
                rustix::fs::StatxFlags::BASIC_STATS | rustix::fs::StatxFlags::BTIME,
            );
            let ours = Metadata::new(ours.unwrap());
            let std = std::fs::symlink_metadata(path).unwrap();
            assert_eq!(
                (ours.is_dir(), ours.is_file(), ours.is_symlink(), ours.len()),
                (std.is_dir(), std.is_file(), std.is_symlink(), std.len())
            );
            assert_eq!(
                (
                    ours.dev(),
                    ours.rdev(),
                    ours.ino(),
                    ours.mode(),
                    ours.blocks()
                ),
                (std.dev(), std.rdev(), std.ino(), std.mode(), std.blocks())
            );
            assert_eq!((ours.uid(), ours.gid()), (std.uid(), std.gid()));
            assert_eq!(ours.modified().unwrap(), std.modified().unwrap());
            assert_eq!(ours.created().ok(), std.created().ok());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's statx fills in a part of the structure")]
    fn a_field_that_is_not_filled_in_is_no_time() {
        let statx = rustix::fs::statx(
            rustix::fs::CWD,
            &TestFile::new().path,
            rustix::fs::AtFlags::empty(),
            rustix::fs::StatxFlags::BASIC_STATS,
        );
        let mut statx = statx.unwrap();
        statx.stx_mask = 0;
        let metadata = Metadata::new(statx);
        assert_eq!(metadata.file_type(), FileType::Unknown);
        assert_eq!(
            metadata.modified().unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
        statx.stx_mask = StatxMask::MTIME.bits();
        statx.stx_mtime.tv_sec = -2;
        statx.stx_mtime.tv_nsec = 500_000_000;
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(Metadata::new(statx).modified().unwrap(), before);
    }
}
