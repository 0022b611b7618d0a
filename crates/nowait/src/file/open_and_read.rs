//! Opening a file and reading it in one call of a worker, if it is small.

use std::path::Path;
use std::sync::Arc;

use super::File;
use super::open::OpenOptions;
use crate::error::Result;
use crate::handle::Handle;
use crate::metadata::{Metadata, StatxMask};
use crate::policy::provenance::{Arrival, Origin, Provenance, Read, ServedBy, origin};
use crate::read::to_end::{room, to_end};
use crate::read::{Cached, cached};
use crate::sys::cast::to_usize;

/// A file that [`OpenOptions::open_and_read`] has opened.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenedFile {
    /// The file. Its position is 0.
    pub file: File,
    /// The basic metadata ([`StatxMask::BASIC_STATS`]), as it was after the file was opened.
    pub metadata: Metadata,
    /// All bytes of the file, if a worker has read it.
    pub contents: Option<Vec<u8>>,
    /// The origin of the contents.
    pub provenance: Provenance,
}

impl OpenOptions {
    /// Opens a regular file, and asks for its metadata. If a worker opens it, the worker also reads it, if it has at most
    /// `limit` bytes. So one trip to a worker takes the place of three. A file of another type is not opened: see
    /// [`regular`](OpenOptions::regular).
    ///
    /// If the path is cached, the calling thread opens the file in the cases of [`open`](OpenOptions::open), and
    /// nothing is read: `contents` is `None`. It is `None`, too, if the file is larger, if reading it has failed,
    /// if it is not open for reading, on procfs, tracefs and debugfs, where a read may wait without end, and with
    /// [`direct`](OpenOptions::direct) or [`keep_cache`](OpenOptions::keep_cache). Then read the file.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// let mut options = nowait::OpenOptions::new();
    /// let opened = options.read(true).open_and_read("Cargo.toml", 64 << 10).await?;
    /// let bytes = match opened.contents {
    ///     Some(bytes) => bytes,
    ///     None => {
    ///         let room = Vec::with_capacity(opened.metadata.len() as usize);
    ///         opened.file.read_at(room, 0).await.into_result()?.1
    ///     }
    /// };
    /// assert!(bytes.starts_with(b"[package]"));
    /// # Ok::<(), nowait::Error>(())
    /// # })?;
    /// # Ok::<(), nowait::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](OpenOptions::open) with [`regular`](OpenOptions::regular), and the errors of statx(2).
    pub async fn open_and_read(&self, path: impl AsRef<Path>, limit: u64) -> Result<OpenedFile> {
        let path: Arc<Path> = path.as_ref().into();
        let opened = self.open_and_read_on(&path, limit).await;
        opened.map_err(|error| error.named("open").on(Some(&path)))
    }

    async fn open_and_read_on(&self, path: &Arc<Path>, limit: u64) -> Result<OpenedFile> {
        if let Some((file, metadata)) = self.open_cached(path)? {
            return Ok(OpenedFile {
                file,
                metadata,
                contents: None,
                provenance: Provenance::default(),
            });
        }
        let engine = self.on()?;
        engine.check_process("open")?;
        let call = {
            let (mut options, engine, path) = (self.clone(), engine.clone(), path.clone());
            options.regular(true);
            let limit = self.may_be_read().then_some(limit);
            move || with_contents(options.blocking_handle(path, &engine)?, limit)
        };
        let (handle, metadata, contents) = engine.spawn_blocking(call).await??;
        let (contents, provenance) = contents.unzip();
        Ok(OpenedFile {
            file: self.take_in(handle, engine)?,
            metadata,
            contents,
            provenance: provenance.unwrap_or_default(),
        })
    }
}

/// The bytes of a file, and their origin.
type Contents = (Vec<u8>, Provenance);

/// Asks for the metadata of an open file, and reads it, if it is regular and not larger than the limit, and a read does not
/// wait without end. Blocks.
pub(crate) fn with_contents(
    handle: Handle,
    limit: Option<u64>,
) -> Result<(Handle, Metadata, Option<Contents>)> {
    let metadata = Metadata::statx(&handle, "", libc::AT_EMPTY_PATH, StatxMask::BASIC_STATS)?;
    let reads = metadata.is_file() && !handle.is_direct() && !handle.waits_without_end();
    let limit = limit.filter(|limit| reads && metadata.len() <= *limit);
    let contents = limit.and_then(|limit| contents(&handle, metadata.len(), limit));
    Ok((handle, metadata, contents))
}

/// The contents of a file of this size. Its position does not move. `None` for an error, which the next read returns,
/// too.
fn contents(file: &Handle, size: u64, limit: u64) -> Option<Contents> {
    // One more byte, so that the read is short at the end of the file.
    let mut bytes = room(to_usize(size)).ok()?;
    bytes.resize(to_usize(size) + 1, 0);
    let tried = cached(file, &mut bytes[..], 0).ok()?;
    match tried {
        Cached::All(_) | Cached::Prefix(_) => file.nowait_read_worked(),
        Cached::Unsupported(_) => file.nowait_read_refused(),
        Cached::Nothing => {}
    }
    let (bytes, origin) = match tried {
        Cached::All(n) if n as u64 == size => {
            bytes.truncate(n);
            (bytes, Origin::Cache)
        }
        _ => {
            drop(bytes);
            let read = |bytes: &mut Vec<u8>| {
                let at = bytes.len() as u64;
                rustix::io::pread(file, rustix::buffer::spare_capacity(bytes), at)
            };
            let bytes = to_end(size, limit, read).ok()?.ok()?;
            let is_missed = matches!(tried, Cached::Nothing);
            let origin = origin(Read {
                bytes: bytes.len(),
                direct: false,
                cached_at: Some(0),
                missed: is_missed,
                nowait_works: is_missed,
                arrival: Arrival::Indeterminate,
            });
            (bytes, origin)
        }
    };
    let provenance = Provenance {
        served_by: ServedBy::Worker,
        ..Provenance::of(bytes.len(), origin)
    };
    Some((bytes, provenance))
}
