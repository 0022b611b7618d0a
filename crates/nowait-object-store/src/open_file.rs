//! An open file that is read, and the question if it is still the file of its path.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use nix::unistd::{AccessFlags, faccessat};
use nowait::mapping::Budget;
use nowait::{
    BufResult, Engine, File, Metadata, OpenOptions, OpenedFile, Provenance, ReadAt, StatxMask,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};

use crate::error::{Error, errno};
use crate::mapped::Mapped;
use crate::ranges;
use crate::stats::Counters;

/// The length of one read of a stream, in bytes. A range that is not longer is one read, and its
/// bytes are not copied again.
const CHUNK: u64 = 4 << 20;

/// Filesystems on which statx(2) of an inode in memory does not wait for a device or a server.
const LOCAL: [&str; 7] = [
    "ext2/3/4",
    "xfs",
    "btrfs",
    "f2fs",
    "tmpfs",
    "ramfs",
    "overlayfs",
];

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    path: PathBuf,
    identity: Identity,
    cacheable: bool,
    mapped: Option<Mapped>,
    counters: Arc<Counters>,
}

/// An open file, with what was found out when it was opened or compared with its path.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: Arc<OpenFile>,
    /// The metadata now.
    pub(crate) metadata: Metadata,
    pub(crate) contents: Option<Contents>,
}

/// All bytes of a file, which the worker that has opened it has read, too.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    bytes: Bytes,
    provenance: Provenance,
}

/// The attributes that differ if a path refers to another file, or the file has changed.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    dev: u64,
    ino: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    len: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        Identity {
            dev: metadata.dev(),
            ino: metadata.ino(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
            len: metadata.len(),
        }
    }
}

impl OpenFile {
    /// Opens the file at `path`. No thread waits. If a worker opens it, the worker also reads it, if it has at most
    /// `small` bytes. With a budget, bytes are borrowed from a mapping.
    ///
    /// # Errors
    /// As [`Error::open`]; [`Error::NotFound`] if it is not a regular file, which is then not
    /// opened.
    pub(crate) async fn open(
        engine: &Engine,
        path: PathBuf,
        small: u64,
        budget: Option<&Budget>,
        counters: &Arc<Counters>,
    ) -> Result<Opened, Error> {
        let mut options = OpenOptions::new();
        options.read(true).engine(engine);
        let opened = options.open_and_read(&path, small).await;
        let OpenedFile {
            file,
            metadata,
            contents,
            provenance,
            ..
        } = opened.map_err(|e| Error::open_object(&path, e))?;
        counters.open();
        let local = file.handle().filesystem().name();
        let local = local.is_some_and(|name| LOCAL.contains(&name));
        let budget = budget.filter(|_| local);
        let file = OpenFile {
            cacheable: local,
            mapped: budget.cloned().map(Mapped::new),
            file,
            path,
            identity: Identity::of(&metadata),
            counters: counters.clone(),
        };
        Ok(Opened {
            file: Arc::new(file),
            metadata,
            contents: contents.map(|bytes| Contents {
                bytes: bytes.into(),
                provenance,
            }),
        })
    }

    /// Returns true if [`current`](OpenFile::current) can be asked: for files on local filesystems.
    pub(crate) fn is_cacheable(&self) -> bool {
        self.cacheable
    }

    /// The metadata of the file at the path now, if it is this file, unchanged since it was opened,
    /// and the calling thread may still read it. Returns `None` if not, or if the kernel would have
    /// to wait for a device to resolve the path.
    ///
    /// The kernel resolves the path from its caches or fails (`RESOLVE_CACHED`, openat2(2)). An
    /// open file keeps the names on its path there. As open(2), the kernel then checks the
    /// permissions of the file and the credentials of the thread (faccessat(2), which takes an
    /// empty path from Linux 5.8 and glibc 2.33 on). Either may have changed.
    pub(crate) fn current(&self) -> Option<Metadata> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat2(CWD, &self.path, flags, Mode::empty(), ResolveFlags::CACHED);
        let opened = opened.ok()?;
        let metadata = stat(&opened).ok()?;
        let flags = nix::fcntl::AtFlags::AT_EMPTY_PATH | nix::fcntl::AtFlags::AT_EACCESS;
        let readable = faccessat(&opened, c"", AccessFlags::R_OK, flags).is_ok();
        (readable && Identity::of(&metadata) == self.identity).then_some(metadata)
    }

    /// The bytes of a range, if they can be borrowed.
    fn borrow(&self, range: &Range<u64>) -> Option<Bytes> {
        let bytes = self.mapped.as_ref()?.get(range)?;
        self.counters.borrow(bytes.len());
        Some(bytes)
    }

    /// Begins to read a range.
    fn begin(&self, range: &Range<u64>) -> Result<ReadAt<'_, Vec<u8>>, Error> {
        let mut space = Vec::new();
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if space.try_reserve_exact(len).is_err() {
            return Err(Error::io("read", &self.path)(
                io::ErrorKind::OutOfMemory.into(),
            ));
        }
        Ok(self.file.read_at(space, range.start))
    }

    /// The bytes of a range, from the result of its read.
    fn end(&self, range: &Range<u64>, read: BufResult<Vec<u8>>) -> Result<Bytes, Error> {
        let n = read
            .result
            .map_err(|e| Error::io("read", &self.path)(errno(e)))?;
        let is_hit = self.counters.read(read.provenance);
        let end = range.start + n as u64;
        if end < range.end {
            return Err(self.beyond(range, end));
        }
        if let (true, Some(mapped)) = (is_hit, &self.mapped) {
            mapped.hit(&self.file, range);
        }
        let mut bytes = read.buf;
        // The vector may have got more room than was asked for.
        bytes.truncate(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
        Ok(bytes.into())
    }

    /// The error of a range that ends after the end of the file.
    fn beyond(&self, range: &Range<u64>, len: u64) -> Error {
        let path = self.path.clone();
        if range.start >= len {
            let start = range.start;
            Error::StartTooLarge { path, start, len }
        } else {
            let end = range.end;
            Error::OutOfRange { path, end, len }
        }
    }

    /// The bytes of a range of the contents that were read when the file was opened.
    fn part(&self, contents: Option<&Contents>, range: &Range<u64>) -> Option<Bytes> {
        let offset = |at: u64| usize::try_from(at).ok();
        let (start, end) = (offset(range.start)?, offset(range.end)?);
        let Contents { bytes, provenance } = contents?;
        if end > bytes.len() {
            return None;
        }
        self.counters.read_at_open(end - start, *provenance);
        // A small part does not keep all of the file in memory.
        Some(match end - start {
            n if n < bytes.len() / 2 => Bytes::copy_from_slice(&bytes[start..end]),
            _ => bytes.slice(start..end),
        })
    }

    /// Reads several ranges of a file that had `len` bytes just now. Ranges that are close to each
    /// other are one read. The calling thread reads those that are cached, and the engine reads all
    /// others at the same time. `contents` is that of [`Opened`].
    ///
    /// # Errors
    /// If a range ends after the end of the file, or before its start.
    pub(crate) async fn read_ranges(
        &self,
        ranges: &[Range<u64>],
        len: u64,
        contents: Option<&Contents>,
    ) -> Result<Vec<Bytes>, Error> {
        for range in ranges {
            let (start, end) = (range.start, range.end);
            if end < start {
                return Err(Error::Inconsistent { start, end });
            }
            if start < end && end > len {
                return Err(self.beyond(range, len));
            }
        }
        let joined = ranges::join(ranges);
        let mut parts = vec![Bytes::new(); joined.len()];
        let mut missed = FuturesUnordered::new();
        for (part, range) in joined.iter().enumerate() {
            if let Some(bytes) = self.part(contents, range).or_else(|| self.borrow(range)) {
                parts[part] = bytes;
                continue;
            }
            let mut read = self.begin(range)?;
            match futures_util::poll!(&mut read) {
                Poll::Ready(read) => parts[part] = self.end(range, read)?,
                Poll::Pending => {
                    missed.push(async move { (part, self.end(range, read.await)) });
                }
            }
        }
        while let Some((part, bytes)) = missed.next().await {
            parts[part] = bytes?;
        }
        Ok(ranges::split(ranges, &joined, &parts))
    }

    /// Reads a range as a stream of chunks. The descriptor is open until the stream ends or is
    /// dropped. `contents` is that of [`Opened`].
    pub(crate) fn stream(
        self: Arc<OpenFile>,
        range: Range<u64>,
        contents: Option<Contents>,
    ) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
        let begun = (self, range, contents);
        stream::try_unfold(begun, |(file, rest, contents)| async move {
            if rest.is_empty() {
                return Ok(None);
            }
            let end = rest.end.min(rest.start.saturating_add(CHUNK));
            let chunk = rest.start..end;
            let known = file.part(contents.as_ref(), &chunk);
            let bytes = match known.or_else(|| file.borrow(&chunk)) {
                Some(bytes) => bytes,
                None => {
                    let read = file.begin(&chunk)?.await;
                    file.end(&chunk, read)?
                }
            };
            Ok(Some((bytes, (file, end..rest.end, contents))))
        })
    }
}

/// The metadata of an open file on a local filesystem.
fn stat(file: impl std::os::fd::AsFd) -> io::Result<Metadata> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let flags = flags.bits().cast_signed();
    Metadata::statx(file, "", flags, StatxMask::BASIC_STATS).map_err(errno)
}
