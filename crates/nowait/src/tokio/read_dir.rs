//! The entries of a directory: `tokio::fs::read_dir`, on [`Scan`].

use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use once_cell::race::OnceBox;
use rustix::fs::{Mode, OFlags};

use super::error::as_io;
use super::metadata;
use super::worker::on_worker;
use crate::engine::Engine;
use crate::metadata::FileType as Kind;
use crate::scan::{Batch, Directory, Options, Scan};
use crate::sys;

/// Returns the entries of a directory except `.` and `..`, in no particular order. A worker opens the directory and lists
/// its first names; all of them if they are few.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut entries = nowait::tokio::read_dir("src").await?;
/// let mut found = false;
/// while let Some(entry) = entries.next_entry().await? {
///     found |= entry.file_name() == "lib.rs" && entry.file_type().await?.is_file();
/// }
/// assert!(found);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The errors of open(2) for the directory.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref().to_owned();
    let list = move || Options::new().blocking_list(&path).map_err(as_io);
    let (directory, scan) = on_worker(&Engine::process()?, None, list).await?;
    Ok(ReadDir {
        scan,
        directory,
        batch: None,
    })
}

/// The entries of a directory, returned by [`read_dir`].
#[derive(Debug)]
#[must_use = "entries are read when they are asked for"]
pub struct ReadDir {
    directory: Arc<Directory>,
    scan: Scan,
    /// The current batch, and the index of its next entry.
    batch: Option<(Batch, usize)>,
}

impl ReadDir {
    /// Returns the next entry, or `None` after the last one.
    ///
    /// # Errors
    /// The errors of getdents64(2). More entries may follow an error.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        std::future::poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    /// Polls for the next entry.
    ///
    /// # Errors
    /// As [`next_entry`](ReadDir::next_entry).
    pub fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<DirEntry>>> {
        loop {
            if let Some((batch, next)) = &mut self.batch {
                if let Some(entry) = batch.get(*next) {
                    *next += 1;
                    return Poll::Ready(Ok(Some(DirEntry {
                        directory: self.directory.clone(),
                        name: entry.file_name().to_owned(),
                        ino: entry.ino(),
                        kind: entry.file_type(),
                    })));
                }
                self.batch = None;
            }
            match ready!(self.scan.poll_batch(cx)) {
                Some(Ok(batch)) => self.batch = Some((batch, 0)),
                Some(Err(error)) => return Poll::Ready(Err(as_io(error))),
                None => return Poll::Ready(Ok(None)),
            }
        }
    }
}

/// An entry of a directory. It keeps the directory open, as tokio's does: its methods refer to the
/// directory that was read, even if that was renamed since.
#[derive(Debug)]
pub struct DirEntry {
    directory: Arc<Directory>,
    name: OsString,
    ino: u64,
    kind: Kind,
}

impl DirEntry {
    /// The path: that of the directory as it was given, joined with the entry's name.
    pub fn path(&self) -> PathBuf {
        let root: &Path = self.directory.path().map_or(Path::new(""), |path| path);
        root.join(&self.name)
    }

    /// The name.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The inode number, as stored in the directory.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Returns the metadata of the entry: fstatat(2). Symbolic links are not followed. The result is ready
    /// at the first poll in the cases of [`metadata`](super::metadata()).
    ///
    /// # Errors
    /// The errors of fstatat(2).
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let ask = || metadata::of_name(self.directory.as_fd(), &self.name);
        if let Some(metadata) = metadata::at_once(ask).await {
            return metadata;
        }
        let (directory, name) = (self.directory.clone(), self.name.clone());
        let call = move || {
            // Only the standard library's own calls create its metadata type, and they take no
            // directory descriptor.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let entry = rustix::fs::openat(&directory, &name, flags, Mode::empty())?;
            metadata::remember_file(&entry);
            sys::stat::as_std(entry.as_fd(), std::fs::File::metadata)
        };
        on_worker(&Engine::process()?, None, call).await
    }

    /// Returns the file type. On most filesystems the directory stores it. Otherwise fstatat(2) is
    /// called, as it is for the first entry of each type in a process.
    ///
    /// # Errors
    /// The errors of fstatat(2), if it is called.
    pub async fn file_type(&self) -> io::Result<FileType> {
        if let Some(known) = seen(self.kind).and_then(OnceBox::get) {
            return Ok(*known);
        }
        let metadata = self.metadata().await?;
        let file_type = metadata.file_type();
        if let Some(seen) = seen(rustix::fs::FileType::from_raw_mode(metadata.mode()).into()) {
            // Another thread may have set the same value first.
            let _ = seen.set(Box::new(file_type));
        }
        Ok(file_type)
    }
}

/// The standard library's `FileType` for a type, set after a file of that type was seen. The
/// standard library offers no other way to create one. Returns `None` for an unknown type.
fn seen(kind: Kind) -> Option<&'static OnceBox<FileType>> {
    static SEEN: [OnceBox<FileType>; 7] = [const { OnceBox::new() }; 7];
    let all = [
        Kind::File,
        Kind::Dir,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];
    let at = all.iter().position(|known| *known == kind)?;
    Some(&SEEN[at])
}
