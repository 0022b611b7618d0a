//! The windows of each file that is in use.

use std::collections::HashMap;
use std::convert::Infallible;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, StatxFlags, makedev, statx};

use super::table::Windows;
use crate::sys::Errno;
use crate::sys::process::{Owner, PerProcess};

/// The windows of one file. All open files of one inode share it: the pages that one has read are
/// not resident before the read of another.
#[derive(Debug)]
pub struct FileWindows {
    id: Id,
    process: Owner,
    windows: Mutex<Windows>,
}

/// A file: device, inode number, and the time of its creation, since inode numbers are used again.
type Id = (u64, u64, i64, u32);

/// Each file with the number of its users. A file without users has pages to evict.
type Files = HashMap<Id, (Arc<FileWindows>, usize)>;

/// The files of this process.
static FILES: PerProcess<Mutex<Files>> = PerProcess::new();

impl FileWindows {
    /// The windows of an open file. [`close`](FileWindows::close) must be called as often.
    ///
    /// # Errors
    /// The errors of statx(2).
    pub fn open(fd: impl AsFd) -> std::io::Result<Arc<FileWindows>> {
        Ok(open(&fd)?)
    }

    /// Ends a use of the file. Returns the windows that may have pages to evict if it was the last one, with the number of
    /// this close. Forgets the file if there are none.
    pub(super) fn end_use(&self) -> Option<(Vec<u64>, u64)> {
        let mut files = files();
        let (_, users) = files.get_mut(&self.id)?;
        *users -= 1;
        if *users > 0 {
            return None;
        }
        let mut windows = self.lock();
        let to_evict = windows.close();
        if to_evict.is_empty() {
            drop(windows);
            files.remove(&self.id);
            return None;
        }
        Some((to_evict, windows.closes))
    }

    /// Returns true in the process that has opened the file. A forked child evicts nothing.
    pub(super) fn is_here(&self) -> bool {
        self.process.is_here()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Windows> {
        lock(&self.windows)
    }

    /// Ends the attempts to evict pages of these windows after the close with this number. Forgets the file if it has no
    /// users.
    pub(super) fn give_up(&self, indices: &[u64], closes: u64) {
        // The file is not opened meanwhile.
        let mut files = files();
        if !self.lock().give_up(indices, closes) {
            return;
        }
        let is_unused = |(file, users): &(Arc<FileWindows>, usize)| {
            *users == 0 && std::ptr::eq(Arc::as_ptr(file), self)
        };
        if files.get(&self.id).is_some_and(is_unused) {
            files.remove(&self.id);
        }
    }
}

fn open(fd: &impl AsFd) -> Result<Arc<FileWindows>, Errno> {
    let fields = StatxFlags::INO | StatxFlags::BTIME;
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, fields)?;
    let device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let created = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
    let id = (device, stat.stx_ino, created.0, created.1);
    let mut files = files();
    let (file, users) = files.entry(id).or_insert_with(|| {
        let file = FileWindows {
            id,
            process: Owner::current(),
            windows: Mutex::default(),
        };
        (Arc::new(file), 0)
    });
    if *users == 0 {
        file.lock().open();
    }
    *users += 1;
    Ok(file.clone())
}

fn files() -> MutexGuard<'static, Files> {
    let Ok(files) = FILES.get_or_make(|| Ok::<_, Infallible>(Mutex::default()));
    lock(files)
}

/// Locks a mutex. A panic leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
