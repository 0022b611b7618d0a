//! The entries of a directory, one by one: `tokio::fs::read_dir`, on [`Scan`].

use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use once_cell::race::OnceBox;
use rustix::fs::FileType as Kind;

use super::{as_io, symlink_metadata};
use crate::scan::{Batch, Scan};

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
    let root: Arc<Path> = path.as_ref().into();
    let scan = Scan::open(&*root).await.map_err(as_io)?;
    Ok(ReadDir {
        root,
        scan,
        batch: None,
    })
}

/// What [`read_dir`] gives.
#[derive(Debug)]
#[must_use = "entries are read when they are asked for"]
pub struct ReadDir {
    root: Arc<Path>,
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
                        root: self.root.clone(),
                        name: entry.name().to_owned(),
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

/// One entry of a directory. It holds no descriptor, as tokio's does: what it is asked, its path is
/// asked, also when the directory has another name by then.
#[derive(Debug)]
pub struct DirEntry {
    root: Arc<Path>,
    name: OsString,
    ino: u64,
    kind: Kind,
}

impl DirEntry {
    /// Its path: the directory's as it was given, and the entry's name.
    pub fn path(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// Its name.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// Its inode's number, as the directory has it.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// What lstat(2) says of its path.
    ///
    /// # Errors
    /// As lstat(2) says.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        symlink_metadata(self.path()).await
    }

    /// What kind of file it is. The directory knows that on most filesystems. Else lstat(2) is asked,
    /// as it is for the first of each kind that the process meets.
    ///
    /// # Errors
    /// As lstat(2) says, where it has to be asked.
    pub async fn file_type(&self) -> io::Result<FileType> {
        if let Some(known) = seen(self.kind).and_then(OnceBox::get) {
            return Ok(*known);
        }
        let metadata = self.metadata().await?;
        let file_type = metadata.file_type();
        if let Some(seen) = seen(Kind::from_raw_mode(metadata.mode())) {
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
        Kind::RegularFile,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharacterDevice,
        Kind::BlockDevice,
    ];
    let at = all.iter().position(|known| *known == kind)?;
    Some(&SEEN[at])
}
