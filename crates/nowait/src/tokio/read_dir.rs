//! The entries of a directory, one by one: `tokio::fs::read_dir`, on [`Scan`].

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
use super::worker::on_worker;
use crate::engine::Engine;
use crate::metadata::FileType as Kind;
use crate::scan::{Batch, Directory, Options, Scan};
use crate::sys;

/// The entries of a directory but `.` and `..`, in no order: [`Scan`], as a stream of names.
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
/// As open(2) says of the directory.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let options = Options::new();
    let directory = options.open_directory(path.as_ref());
    let directory = Arc::new(directory.await.map_err(as_io)?);
    Ok(ReadDir {
        scan: options.start(directory.clone()),
        directory,
        batch: None,
    })
}

/// What [`read_dir`] gives.
#[derive(Debug)]
#[must_use = "entries are read when they are asked for"]
pub struct ReadDir {
    directory: Arc<Directory>,
    scan: Scan,
    /// The entries that are there, and the next of them.
    batch: Option<(Batch, usize)>,
}

impl ReadDir {
    /// The next entry; `None` after the last one.
    ///
    /// # Errors
    /// As getdents64(2) says; the listing may go on after one.
    pub async fn next_entry(&mut self) -> io::Result<Option<DirEntry>> {
        std::future::poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    /// The next entry, for hand-written futures.
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

/// One entry of a directory. It keeps the directory open, as tokio's does: what it is asked is asked of
/// the directory that was read, also when that has another name by then.
#[derive(Debug)]
pub struct DirEntry {
    directory: Arc<Directory>,
    name: OsString,
    ino: u64,
    kind: Kind,
}

impl DirEntry {
    /// Its path: the directory's as it was given, and the entry's name.
    pub fn path(&self) -> PathBuf {
        let root: &Path = self.directory.path().map_or(Path::new(""), |path| path);
        root.join(&self.name)
    }

    /// Its name.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// Its inode's number, as the directory has it.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// What fstatat(2) says of it; links are not followed.
    ///
    /// # Errors
    /// As fstatat(2) says.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let (directory, name) = (self.directory.clone(), self.name.clone());
        let call = move || {
            // The standard library's type comes from its own calls alone, and those take no directory.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let entry = rustix::fs::openat(&directory, &name, flags, Mode::empty())?;
            sys::stat::as_std(entry.as_fd(), std::fs::File::metadata)
        };
        on_worker(&Engine::process()?, None, call).await
    }

    /// What kind of file it is. The directory knows that on most filesystems. Else fstatat(2) is
    /// asked, as it is for the first of each kind that the process meets.
    ///
    /// # Errors
    /// As fstatat(2) says, where it has to be asked.
    pub async fn file_type(&self) -> io::Result<FileType> {
        if let Some(known) = seen(self.kind).and_then(OnceBox::get) {
            return Ok(*known);
        }
        let metadata = self.metadata().await?;
        let file_type = metadata.file_type();
        if let Some(seen) = seen(rustix::fs::FileType::from_raw_mode(metadata.mode()).into()) {
            // Another may have been faster, with the same.
            let _ = seen.set(Box::new(file_type));
        }
        Ok(file_type)
    }
}

/// The standard library's word for a kind, once a file of that kind was seen: nobody else can make
/// one. `None` for a kind that the directory does not know.
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
