//! A file that this process writes again and again, and removes at its end. No other file is replaced or
//! removed.
//!
//! ```text
//!  claim: nothing is there, or what a process has left ─► write: a new file, locked, renamed ─► remove
//! ```
//! The file is locked (flock(2)) while the process runs, also for processes of other PID namespaces. The
//! kernel releases the lock when the process ends.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The number of attempts to open the file that the path leads to, while a process replaces it.
const TRIES: usize = 100;

/// A file of this process.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    mode: u32,
    /// The file that may be replaced: the one that was written last, or what an ended process has left.
    replaceable: Option<File>,
    /// This process has written it.
    is_written: bool,
}

impl OwnFile {
    /// A file with a name that no other process uses.
    pub fn new(path: PathBuf, mode: u32) -> OwnFile {
        OwnFile {
            path,
            mode,
            replaceable: None,
            is_written: false,
        }
    }

    /// A file with a name that the user gave. Nothing may be there, or a file that begins with `begin`
    /// and that no running process holds.
    ///
    /// # Errors
    /// The reason why the file must not be replaced.
    pub fn claim(path: PathBuf, mode: u32, begin: &str) -> Result<OwnFile, String> {
        let mut own = OwnFile::new(path, mode);
        for _ in 0..TRIES {
            let Some(file) = open(&own.path)? else {
                return Ok(own);
            };
            let mut read = Vec::new();
            let beginning = (&file).take(begin.len() as u64).read_to_end(&mut read);
            beginning.map_err(|e| e.to_string())?;
            if read != begin.as_bytes() {
                return Err("exists, and `nowait keep` has not written it".into());
            }
            if !lock(&file) {
                return Err("belongs to a `nowait keep` that runs".into());
            }
            if is_at(&file, &own.path) {
                own.replaceable = Some(file);
                return Ok(own);
            }
        }
        Err("is replaced again and again".into())
    }

    /// Writes the file beside the old one, and renames it.
    ///
    /// # Errors
    /// Of the system calls. EEXIST if a file is there that this process must not replace.
    pub fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut file = tempfile::Builder::new()
            .prefix(".nowait-keep-")
            .permissions(Permissions::from_mode(self.mode))
            .tempfile_in(directory)?;
        file.write_all(text)?;
        // The mask of the process does not apply.
        file.as_file()
            .set_permissions(Permissions::from_mode(self.mode))?;
        // A filesystem may have no locks.
        lock(file.as_file());
        let is_old = |old: &File| is_at(old, &self.path);
        let renamed = match self.replaceable.as_ref().is_some_and(is_old) {
            true => file.persist(&self.path),
            false => file.persist_noclobber(&self.path),
        };
        self.replaceable = Some(renamed?);
        self.is_written = true;
        Ok(())
    }

    /// Removes the file, if this process has written it and no other one has taken its place.
    pub fn remove(&mut self) {
        let is_written = std::mem::take(&mut self.is_written);
        if let Some(file) = self.replaceable.take().filter(|_| is_written)
            && is_at(&file, &self.path)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns true if a running process has written the file at a path by [`OwnFile::write`].
pub fn is_in_use(path: &Path) -> bool {
    matches!(open(path), Ok(Some(file)) if flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

/// Removes a file that an ended process has left.
pub fn remove_left(path: &Path) {
    if let Ok(Some(file)) = open(path)
        && lock(&file)
        && is_at(&file, path)
    {
        let _ = fs::remove_file(path);
    }
}

/// Opens a regular file; `None` if nothing is there.
fn open(path: &Path) -> Result<Option<File>, String> {
    let is_regular = |found: Metadata| match found.is_file() {
        true => Ok(()),
        false => Err("exists, and is not a regular file".to_owned()),
    };
    let absent = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Ok(None),
        _ => Err(e.to_string()),
    };
    match fs::symlink_metadata(path) {
        Ok(found) => is_regular(found)?,
        Err(e) => return absent(e),
    }
    // It may be a FIFO or a link by now.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => {
            is_regular(file.metadata().map_err(|e| e.to_string())?)?;
            Ok(Some(file))
        }
        Err(e) => absent(e),
    }
}

/// Locks a file until it is closed. Returns false if another process has locked it.
fn lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// Returns true if this open file is the one at the path.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: Metadata| (found.dev(), found.ino());
    let now = fs::symlink_metadata(path).map(id);
    matches!((file.metadata().map(id), now), (Ok(file), Ok(now)) if file == now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut own = OwnFile::new(path.clone(), 0o644);
        own.write(b"longer text").unwrap();
        assert!(is_in_use(&path));
        remove_left(&path);
        own.write(b"text").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"text");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        drop(own);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_others_is_neither_replaced_nor_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let claim = || OwnFile::claim(path.clone(), 0o644, "# ours");
        fs::write(&path, "notes").unwrap();
        assert!(claim().unwrap_err().contains("has not written it"));
        let mut own = OwnFile::new(path.clone(), 0o644);
        assert!(own.write(b"# ours").is_err());
        drop(own);
        assert_eq!(fs::read(&path).unwrap(), b"notes");
        fs::remove_file(&path).unwrap();

        let mut own = claim().unwrap();
        own.write(b"# ours, one").unwrap();
        assert!(claim().unwrap_err().contains("that runs"));
        fs::rename(&path, directory.path().join("aside")).unwrap();
        fs::write(&path, "notes").unwrap();
        assert!(own.write(b"# ours, two").is_err());
        drop(own);
        assert_eq!(fs::read(&path).unwrap(), b"notes");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
    }

    #[test]
    fn what_an_ended_process_has_left_is_replaced_but_not_removed_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let claim = || OwnFile::claim(path.clone(), 0o644, "# ours").unwrap();
        fs::write(&path, "# ours, left").unwrap();
        assert!(!is_in_use(&path));
        drop(claim());
        assert_eq!(fs::read(&path).unwrap(), b"# ours, left");
        let mut own = claim();
        own.write(b"# ours").unwrap();
        drop(own);
        assert!(!path.exists());
        fs::write(&path, "# ours, left").unwrap();
        remove_left(&path);
        assert!(!path.exists());
    }
}
