//! Entries, in batches that own names and metadata.
//!
//! A batch takes three or four allocations, for any number of entries: one arena of names, one
//! table of records, one of metadata. A [`DirEntry`] is a batch and an index.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::dir::Dir;
use crate::error::{Error, Result};
use crate::metadata::{FileType, Metadata, StatxMask};
use crate::sys::Errno;

/// The contents of one dirent, and a reference to the entry's metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) ino: u64,
    /// The offset of its name in the arena. The name ends with a NUL.
    name: u32,
    query: QueryState,
    pub(super) kind: FileType,
}

/// The result of the query for an entry's metadata.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueryState {
    /// No query was made (yet).
    NotQueried,
    /// The index in the table of metadata.
    At(u32),
    Failed(Errno),
}

/// Entries under construction: names first, metadata when a worker has queried it.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    names: Vec<u8>,
    pub(super) records: Vec<Record>,
    stats: Vec<Metadata>,
    attributes: Attributes,
    /// The number of entries, from the first on, that have been queried.
    pub(super) queried: usize,
}

/// The extended attributes of many entries.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Name and value of each attribute, with their lengths before them.
    bytes: Vec<u8>,
    /// The range of `bytes` for each entry. Empty if attributes were not asked for.
    spans: Vec<Result<(u32, u32), Errno>>,
}

/// The length of a value that was not asked for.
const NO_VALUE: u32 = u32::MAX;

impl EntryTable {
    pub(super) fn with_capacity(entries: usize, bytes: usize) -> EntryTable {
        EntryTable {
            names: Vec::with_capacity(bytes),
            records: Vec::with_capacity(entries),
            ..EntryTable::default()
        }
    }

    /// Adds an entry. There are at most as many as fit a buffer or a batch.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a buffer or a batch of names has far fewer bytes"
    )]
    pub(super) fn push(&mut self, name: &CStr, ino: u64, kind: FileType) {
        self.records.push(Record {
            ino,
            name: self.names.len() as u32,
            query: QueryState::NotQueried,
            kind,
        });
        self.names.extend_from_slice(name.to_bytes_with_nul());
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The bytes that an entry with a name of ordinary length takes.
    pub(super) fn bytes_of_an_entry(metadata: bool) -> usize {
        size_of::<Record>() + 24 + if metadata { size_of::<Metadata>() } else { 0 }
    }

    /// The bytes in use, including those for metadata if `metadata` is true.
    pub(super) fn bytes(&self, metadata: bool) -> usize {
        let each = size_of::<Record>() + if metadata { size_of::<Metadata>() } else { 0 };
        self.names.len() + self.len() * each + self.attributes.bytes.len()
    }

    /// The bytes of all extended attributes.
    pub(super) fn attribute_bytes(&self) -> usize {
        self.attributes.bytes.len()
    }

    /// The length of all names.
    pub(super) fn name_bytes(&self) -> usize {
        self.names.len() - self.records.len()
    }

    pub(super) fn name(&self, at: usize) -> &CStr {
        let from = self.records[at].name as usize;
        CStr::from_bytes_until_nul(&self.names[from..]).unwrap_or_default()
    }

    /// Removes all entries from index `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        if let Some(record) = self.records.get(len) {
            self.names.truncate(record.name as usize);
            self.records.truncate(len);
        }
    }

    /// Returns true if there is an entry of this name.
    pub(super) fn has(&self, name: &CStr) -> bool {
        (0..self.len()).any(|at| self.name(at) == name)
    }

    /// Removes the first `n` entries.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a buffer or a batch of names has far fewer bytes"
    )]
    pub(super) fn skip(&mut self, n: usize) {
        let start = self
            .records
            .get(n)
            .map_or(self.names.len() as u32, |r| r.name);
        self.names.drain(..start as usize);
        self.records.drain(..n);
        self.records
            .iter_mut()
            .for_each(|record| record.name -= start);
    }

    /// Removes and returns the entries that have not been queried.
    pub(super) fn split_off(&mut self) -> EntryTable {
        let mut rest = EntryTable::with_capacity(self.len() - self.queried, self.names.len());
        for at in self.queried..self.len() {
            rest.copy(self, at);
        }
        self.truncate(self.queried);
        rest
    }

    /// The number of entries whose metadata could not be read.
    pub(super) fn failures(&self) -> u64 {
        let failed = |record: &&Record| matches!(record.query, QueryState::Failed(_));
        self.records.iter().filter(failed).count() as u64
    }

    /// Stores the result for the next entry.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a buffer or a batch of names has far fewer bytes"
    )]
    pub(super) fn add_metadata(&mut self, metadata: Result<Metadata, Errno>) {
        let query = match metadata {
            Ok(stat) => {
                if self.stats.capacity() == 0 {
                    self.stats.reserve_exact(self.len());
                }
                self.stats.push(stat);
                QueryState::At(self.stats.len() as u32 - 1)
            }
            Err(errno) => QueryState::Failed(errno),
        };
        self.records[self.queried].query = query;
        self.queried += 1;
    }

    /// The attributes, to which those of the current entry are appended.
    pub(super) fn attributes(&mut self) -> &mut Attributes {
        &mut self.attributes
    }

    pub(super) fn stat(&self, at: usize) -> Option<Result<&Metadata, Errno>> {
        match self.records[at].query {
            QueryState::NotQueried => None,
            QueryState::At(at) => Some(Ok(&self.stats[at as usize])),
            QueryState::Failed(errno) => Some(Err(errno)),
        }
    }

    /// The file type, and true if it comes from the metadata.
    fn kind(&self, at: usize) -> (FileType, bool) {
        match self.stat(at) {
            Some(Ok(metadata)) if metadata.has(StatxMask::TYPE) => (metadata.file_type(), true),
            _ => (self.records[at].kind, false),
        }
    }

    /// Appends a copy of an entry of `other`, with all of its results.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a buffer or a batch of names has far fewer bytes"
    )]
    pub(super) fn copy(&mut self, other: &EntryTable, at: usize) {
        let record = other.records[at];
        self.push(other.name(at), record.ino, record.kind);
        if let QueryState::At(stat) = record.query {
            self.stats.push(other.stats[stat as usize]);
        }
        if let Some(last) = self.records.last_mut() {
            last.query = match record.query {
                QueryState::At(_) => QueryState::At(self.stats.len() as u32 - 1),
                query => query,
            };
        }
        if let Some(span) = other.attributes.spans.get(at) {
            let start = self.attributes.bytes.len();
            if let Ok((from, to)) = *span {
                let bytes = &other.attributes.bytes[from as usize..to as usize];
                self.attributes.bytes.extend_from_slice(bytes);
            }
            self.attributes.close(start, span.map(|_| ()));
        }
        self.queried += usize::from(!matches!(record.query, QueryState::NotQueried));
    }
}

impl Attributes {
    /// The start of the next entry's attributes.
    pub(super) fn open(&self) -> usize {
        self.bytes.len()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a name or a value has at most 64 KiB"
    )]
    pub(super) fn push(&mut self, name: &[u8], value: Option<&[u8]>) {
        let length = |bytes: &[u8]| (bytes.len() as u32).to_ne_bytes();
        self.bytes.extend_from_slice(&length(name));
        match value {
            Some(value) => self.bytes.extend_from_slice(&length(value)),
            None => self.bytes.extend_from_slice(&NO_VALUE.to_ne_bytes()),
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Ends an entry: its attributes are those pushed since `start`, or its query failed.
    pub(super) fn close(&mut self, start: usize, outcome: Result<(), Errno>) {
        if outcome.is_err() {
            self.bytes.truncate(start);
        }
        let span = u32::try_from(start)
            .ok()
            .zip(u32::try_from(self.bytes.len()).ok());
        self.spans
            .push(outcome.and_then(|()| span.ok_or(Errno::OVERFLOW)));
    }
}

/// Entries of one directory that were returned together. Cloning copies no entries.
///
/// ```
/// let mut scan = nowait::Scan::blocking_open("src")?;
/// while let Some(batch) = scan.blocking_batch() {
///     for entry in batch?.iter() {
///         println!("{}", entry.file_name().display());
///     }
/// }
/// # Ok::<(), nowait::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: Arc<Dir>,
    rows: EntryTable,
}

impl Batch {
    pub(super) fn new(dir: Arc<Dir>, rows: EntryTable) -> Batch {
        Batch(Arc::new(Inner { dir, rows }))
    }

    /// The directory of the entries.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.0.dir
    }

    /// The number of entries; never 0.
    #[allow(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.0.rows.len()
    }

    /// The entry at index `at`, if there is one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a batch has far fewer entries"
    )]
    pub fn get(&self, at: usize) -> Option<DirEntry> {
        (at < self.len()).then(|| DirEntry {
            batch: self.clone(),
            at: at as u32,
        })
    }

    /// Each name, its file type, and true if the type comes from the metadata.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&[u8], FileType, bool)> {
        let rows = &self.0.rows;
        (0..rows.len()).map(|at| {
            let (kind, sure) = rows.kind(at);
            (rows.name(at).to_bytes(), kind, sure)
        })
    }

    /// The entries, in order.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a batch has far fewer entries"
    )]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DirEntry> + use<> {
        let batch = self.clone();
        (0..self.len() as u32).map(move |at| DirEntry {
            batch: batch.clone(),
            at,
        })
    }
}

/// A name in a directory, and the metadata that was asked for.
///
/// An entry keeps its whole batch in memory. To keep a few entries of many, copy what is needed.
#[derive(Clone)]
pub struct DirEntry {
    batch: Batch,
    at: u32,
}

impl DirEntry {
    fn rows(&self) -> &EntryTable {
        &self.batch.0.rows
    }

    fn record(&self) -> Record {
        self.rows().records[self.at as usize]
    }

    /// The directory of the entry.
    pub fn dir(&self) -> &Arc<Dir> {
        self.batch.dir()
    }

    /// The path: that of the directory, joined with the name.
    pub fn path(&self) -> PathBuf {
        self.dir().path_of(self.file_name_c().to_bytes())
    }

    /// The depth below the root: 1 for an entry of the root itself.
    pub fn depth(&self) -> usize {
        self.dir().depth() + 1
    }

    /// The name: any bytes except `/` and NUL, at most 255 on most filesystems.
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(self.file_name_c().to_bytes())
    }

    /// The name as a C string.
    pub fn file_name_c(&self) -> &CStr {
        self.rows().name(self.at as usize)
    }

    /// The inode number: that of statx(2) if it was asked for, otherwise the directory's.
    pub fn ino(&self) -> u64 {
        match self.stat() {
            Some(Ok(metadata)) if metadata.has(StatxMask::INO) => metadata.ino(),
            _ => self.record().ino,
        }
    }

    /// The file type: that of statx(2) if it was asked for, otherwise the directory's, which may
    /// be `Unknown`.
    pub fn file_type(&self) -> FileType {
        self.rows().kind(self.at as usize).0
    }

    /// The metadata; `None` if the scan was not set to ask for it.
    ///
    /// Only the fields in [`Metadata::mask`] are filled in.
    ///
    /// # Errors
    /// The errors of statx(2) for this entry: ENOENT if it was removed since, EIO if its inode
    /// cannot be read.
    pub fn metadata(&self) -> Option<Result<&Metadata>> {
        self.stat()
            .map(|stat| stat.map_err(|e| self.failed("statx", e)))
    }

    /// The extended attributes; `None` if the scan was not set to ask for them.
    ///
    /// # Errors
    /// The errors of listxattr(2) and getxattr(2) for this entry: EOPNOTSUPP if the filesystem has
    /// no attributes.
    pub fn xattrs(&self) -> Option<Result<Xattrs<'_>>> {
        let attributes = &self.rows().attributes;
        let span = *attributes.spans.get(self.at as usize)?;
        Some(
            span.map(|(from, to)| Xattrs(&attributes.bytes[from as usize..to as usize]))
                .map_err(|e| self.failed("listxattr", e)),
        )
    }

    fn stat(&self) -> Option<Result<&Metadata, Errno>> {
        self.rows().stat(self.at as usize)
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        let path = self.dir().known_path().map(|_| self.path().into());
        Error::os(operation, errno).on(path.as_ref())
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirEntry")
            .field("file_name", &self.file_name())
            .field("ino", &self.ino())
            .field("file_type", &self.file_type())
            .finish_non_exhaustive()
    }
}

/// The extended attributes of an entry: names, and values if they were asked for.
#[derive(Clone, Debug)]
pub struct Xattrs<'a>(&'a [u8]);

impl<'a> Xattrs<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn length(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }
}

impl<'a> Iterator for Xattrs<'a> {
    type Item = (&'a OsStr, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.length()?;
        let value = self.length()?;
        let name = OsStr::from_bytes(self.take(name as usize)?);
        match value {
            NO_VALUE => Some((name, None)),
            length => Some((name, Some(self.take(length as usize)?))),
        }
    }
}
