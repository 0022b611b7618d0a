//! One getdents64(2) call and its entries, without a scan.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::SeekFrom;

use super::{BUFFER_SIZE, DirFd, DirStream, Directory};
use crate::error::{Error, Result};

/// An open directory. See `scan::list`.
#[derive(Debug)]
pub struct Dirents(Arc<Directory>);

impl Dirents {
    /// The buffer size of the call.
    pub const BUFFER_SIZE: usize = BUFFER_SIZE;

    /// Opens a directory.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open(path: &Path) -> Result<Dirents> {
        Directory::blocking_open(path).map(|directory| Dirents(Arc::new(directory)))
    }

    /// Makes one call at the beginning of the directory. Returns the number of entries, without `.`
    /// and `..`, and the length of their names.
    ///
    /// # Errors
    /// Those of lseek(2).
    pub fn list(&self) -> Result<(usize, usize)> {
        rustix::fs::seek(&*self.0, SeekFrom::Start(0)).map_err(|e| Error::os("lseek", e))?;
        let stream = DirStream::new(DirFd::First(self.0.clone()), 0, BUFFER_SIZE);
        let rows = stream.read().rows;
        Ok((rows.len(), rows.name_bytes()))
    }
}
