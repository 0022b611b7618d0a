//! A file that is being written. It has its own name, with `#` and a number at the end, until it is
//! complete.
//!
//! All functions block.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::thread;

use bytes::Bytes;
use nowait::{Metadata, Owner, StatxMask};
use rustix::fs::{AtFlags, Mode, OFlags, openat};
use rustix::io::{Errno, retry_on_intr};

use crate::durable::{self, Directory, Sync};
use crate::error::Error;
use crate::names::publish_new;
use crate::object::e_tag;

/// Decides if an object of the same name is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replace {
    No,
    Yes,
}

/// A file that is being written. If it is dropped before it is published, another thread removes
/// it.
#[derive(Debug)]
pub(crate) struct Staged {
    path: PathBuf,
    to: PathBuf,
    /// The directory of both names.
    directory: Directory,
    /// A forked child of this process does not remove the file.
    owner: Owner,
    /// `None` after the file was published or removed. Writes share the lock, so they run at the
    /// same time.
    file: RwLock<Option<File>>,
}

/// The bytes of a name before the `#` and the number: 255 is the limit of most filesystems, and a
/// number has up to 20.
const STEM: usize = 255 - 1 - 20;

/// The name of the file with this number that will replace the file at `to`. It begins as the name
/// of that file. It is no name of an object, because its only `#` is that before the number: see
/// [`crate::location::is_object_name`].
pub(crate) fn staged_path(to: &Path, number: u64) -> PathBuf {
    let name = to.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let stem = name.split('#').next().unwrap_or_default();
    let end = (0..=STEM).rfind(|at| stem.is_char_boundary(*at));
    to.with_file_name(format!("{}#{number}", &stem[..end.unwrap_or(0)]))
}

impl Staged {
    /// Creates a file that will have the name `to`, and the directories on its path.
    pub(crate) fn create(to: PathBuf, sync: Sync) -> Result<Staged, Error> {
        Staged::create_with(to, Mode::from_raw_mode(0o666), sync)
    }

    /// The same with these permissions, within the umask of the process.
    fn create_with(to: PathBuf, mode: Mode, sync: Sync) -> Result<Staged, Error> {
        let mut number = 1;
        loop {
            let path = staged_path(&to, number);
            let directory = Directory::create(&path, sync)?;
            let (at, name) = directory.at(&path);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match retry_on_intr(|| openat(at, name, flags, mode)) {
                Ok(file) => {
                    return Ok(Staged {
                        path,
                        to,
                        directory,
                        owner: Owner::current(),
                        file: RwLock::new(Some(file.into())),
                    });
                }
                Err(Errno::EXIST) => number += 1,
                Err(Errno::NOENT) => durable::create_parents(&path, sync)?,
                Err(e) => return Err(Error::io("open", &path)(e.into())),
            }
        }
    }

    /// Writes a whole file and gives it its name: see [`publish`](Staged::publish).
    pub(crate) fn put(
        to: PathBuf,
        parts: &[Bytes],
        replace: Replace,
        sync: Sync,
    ) -> Result<String, Error> {
        let staged = Staged::create(to, sync)?;
        let written = staged.write(parts, 0);
        staged.publish_if(written, replace, sync)
    }

    /// Writes a copy of a file and gives it its name: see [`publish`](Staged::publish). Its
    /// permissions are those of the file, within the umask.
    pub(crate) fn copy(
        source: &File,
        metadata: &fs::Metadata,
        to: PathBuf,
        replace: Replace,
        sync: Sync,
    ) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(metadata.mode() & 0o777);
        let staged = Staged::create_with(to, mode, sync)?;
        let written = staged.write_copy(source, metadata.len());
        staged.publish_if(written, replace, sync).map(drop)
    }

    /// Gives the file its name after it was written, or removes it after an error.
    fn publish_if(
        &self,
        written: Result<(), Error>,
        replace: Replace,
        sync: Sync,
    ) -> Result<String, Error> {
        match written {
            Ok(()) => self.publish(replace, sync),
            Err(error) => {
                let _ = self.remove();
                Err(error)
            }
        }
    }

    /// Writes a part of the file.
    pub(crate) fn write(&self, parts: &[Bytes], mut offset: u64) -> Result<(), Error> {
        self.check_process()?;
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let file = file.as_ref().ok_or(Error::Aborted)?;
        for part in parts {
            file.write_all_at(part, offset)
                .map_err(Error::io("write", &self.path))?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the bytes of another file, which has `len` bytes. The kernel copies them, and the two
    /// share them where the filesystem can: copy_file_range(2).
    fn write_copy(&self, mut source: &File, len: u64) -> Result<(), Error> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let mut file = file.as_ref().ok_or(Error::Aborted)?;
        // A signal ends a call after a part. The positions of both files are after that part.
        while let Err(error) = io::copy(&mut source, &mut file) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(Error::io("write", &self.path)(error));
            }
        }
        let copied = file.stream_position();
        if copied.map_err(Error::io("lseek", &self.path))? < len {
            let truncated = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::io("read", &self.to)(truncated));
        }
        Ok(())
    }

    /// Gives the file its name, after all writes that have begun. Returns its entity tag.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if there is an object of that name which may not be replaced. The
    /// file is removed after an error.
    pub(crate) fn publish(&self, replace: Replace, sync: Sync) -> Result<String, Error> {
        let file = self.take()?;
        let named = self.name(file, replace, sync);
        // A renamed file's old name may belong to another writer by now.
        if named.is_err() {
            let _ = fs::remove_file(&self.path);
        }
        let e_tag = named?;
        self.directory.sync()?;
        Ok(e_tag)
    }

    fn name(&self, file: File, replace: Replace, sync: Sync) -> Result<String, Error> {
        let flags = AtFlags::EMPTY_PATH.bits().cast_signed();
        let metadata = Metadata::statx(&file, "", flags, StatxMask::BASIC_STATS)?;
        if sync == Sync::Yes {
            durable::sync_file(&file, &self.path)?;
        }
        durable::close(file, &self.path)?;
        match replace {
            Replace::Yes => {
                fs::rename(&self.path, &self.to).map_err(Error::io("rename", &self.to))?;
            }
            Replace::No => publish_new(&self.directory, &self.path, &self.to)?,
        }
        Ok(e_tag(&metadata))
    }

    /// Removes the file, after all writes that have begun.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        drop(self.take()?);
        fs::remove_file(&self.path).map_err(Error::io("unlink", &self.path))
    }

    fn take(&self) -> Result<File, Error> {
        self.check_process()?;
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        file.take().ok_or(Error::Aborted)
    }

    /// In a forked child, the lock may be held by a thread that does not exist there.
    fn check_process(&self) -> Result<(), Error> {
        if self.owner.is_here() {
            Ok(())
        } else {
            Err(Error::Forked)
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Ok(file) = self.take() {
            let path = std::mem::take(&mut self.path);
            let remove = {
                let path = path.clone();
                move || {
                    drop(file);
                    let _ = fs::remove_file(path);
                }
            };
            let thread = thread::Builder::new().name("nowait-store".into());
            if thread.spawn(remove).is_err() {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// Others remove the empty directory and create it again.
    #[test]
    fn the_directory_of_a_file_is_the_one_that_is_synced() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("directory");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for change in [
                fs::create_dir,
                fs::remove_dir,
                fs::create_dir,
                fs::remove_dir,
            ] {
                let (directory, over) = (&directory, &over);
                scope.spawn(move || {
                    while !over.load(Relaxed) {
                        let _ = change(directory);
                    }
                });
            }
            let mut others = 0;
            for _ in 0..15_000 {
                // The others may win each time.
                let Ok(staged) = Staged::create(directory.join("file"), Sync::Yes) else {
                    continue;
                };
                let synced = rustix::fs::fstat(staged.directory.at(&staged.to).0).unwrap();
                let own = rustix::fs::stat(&directory).unwrap();
                others += usize::from(synced.st_ino != own.st_ino);
                staged.remove().unwrap();
            }
            over.store(true, Relaxed);
            assert_eq!(others, 0);
        });
    }
}
