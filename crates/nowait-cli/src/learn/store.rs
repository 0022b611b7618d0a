//! The directory of the profiles of this user.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::profile::{MAX_SIZE, Profile};
use crate::name::DisplayPath;

/// The directory of the profiles.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// The end of the name of a profile's file.
const SUFFIX: &str = ".profile";
const TOO_LARGE: &str = "it is too large for a profile";
/// The longest NAME.
const MAX_NAME: usize = 100;

impl Store {
    /// The directory of this user, which need not exist.
    ///
    /// # Errors
    /// A message, if the environment does not say where the user's files are.
    pub fn new() -> Result<Store, String> {
        if rustix::process::geteuid().is_root() {
            return Ok(Store("/var/lib/nowait/learn".into()));
        }
        let variable = |name| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let caches = variable("XDG_CACHE_HOME");
        let caches = caches.or_else(|| variable("HOME").map(|home| home.join(".cache")));
        let why = "neither XDG_CACHE_HOME nor HOME is an absolute path: set one of them";
        Ok(Store(caches.ok_or(why)?.join("nowait/learn")))
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        let mut file = name.to_owned();
        file.push(SUFFIX);
        self.0.join(file)
    }

    /// Reads a profile. `None` if there is none.
    ///
    /// # Errors
    /// A message with the path, if it cannot be read or used.
    pub fn read(&self, name: &OsStr) -> Result<Option<Profile>, String> {
        let path = self.path(name);
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", DisplayPath(&path));
        match fs::symlink_metadata(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(&e)),
            Ok(metadata) => {
                check(&metadata, metadata.is_dir(), "directory").map_err(|e| wrong(&e))?
            }
        }
        let mut options = OpenOptions::new();
        // A FIFO would have to be waited for.
        options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(wrong(&e)),
        };
        let metadata = file.metadata().map_err(|e| wrong(&e))?;
        check(&metadata, metadata.is_file(), "file").map_err(|e| wrong(&e))?;
        if metadata.len() > MAX_SIZE {
            return Err(wrong(&TOO_LARGE));
        }
        Profile::read(file).map(Some).map_err(|e| wrong(&e))
    }

    /// The inode number and the modification time of a profile's file, which tell if it was replaced.
    pub fn stamp(&self, name: &OsStr) -> Option<(u64, i64, i64)> {
        let metadata = fs::symlink_metadata(self.path(name)).ok()?;
        Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
    }

    /// Writes a profile beside the old one, and renames it.
    ///
    /// # Errors
    /// A message with the path.
    pub fn write(&self, name: &OsStr, profile: &Profile) -> Result<(), String> {
        let path = self.path(name);
        self.replace(&path, profile)
            .map_err(|e| format!("{}: {e}", DisplayPath(&path)))
    }

    fn replace(&self, path: &Path, profile: &Profile) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?;
        let metadata = fs::symlink_metadata(&self.0)?;
        check(&metadata, metadata.is_dir(), "directory").map_err(io::Error::other)?;
        let file = tempfile::Builder::new()
            .prefix(".")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(&self.0)?;
        let mut out = BufWriter::new(file);
        profile.write(&mut out)?;
        out.flush()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        if file.as_file().metadata()?.len() > MAX_SIZE {
            return Err(io::Error::other(TOO_LARGE));
        }
        file.persist(path)?;
        Ok(())
    }

    /// The names of all profiles, in order.
    ///
    /// # Errors
    /// A message, if the directory cannot be listed.
    pub fn names(&self) -> Result<Vec<OsString>, String> {
        let entries = match fs::read_dir(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(format!("{}: {e}", DisplayPath(&self.0))),
            Ok(entries) => entries,
        };
        let mut names: Vec<OsString> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let name = name.as_bytes().strip_suffix(SUFFIX.as_bytes())?;
                (!name.starts_with(b".")).then(|| OsStr::from_bytes(name).to_owned())
            })
            .collect();
        names.sort();
        Ok(names)
    }

    /// Removes a profile. Returns false if there is none.
    ///
    /// # Errors
    /// A message with the path.
    pub fn remove(&self, name: &OsStr) -> Result<bool, String> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(format!("{}: {e}", DisplayPath(&path))),
        }
    }

    /// The size of a profile's file in bytes.
    pub fn size(&self, name: &OsStr) -> u64 {
        File::open(self.path(name))
            .and_then(|file| file.metadata())
            .map_or(0, |it| it.len())
    }
}

/// Checks that something belongs to this user, and that others may not write to it.
fn check(metadata: &Metadata, is_kind: bool, kind: &str) -> Result<(), String> {
    const OTHERS: u32 = 0o022;
    if !is_kind {
        Err(format!("it is no {kind}"))
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        Err(format!("the {kind} belongs to another user"))
    } else if metadata.permissions().mode() & OTHERS != 0 {
        Err(format!(
            "other users may write to the {kind}: remove it, or change its mode"
        ))
    } else {
        Ok(())
    }
}

/// Checks a NAME that the user gave.
///
/// # Errors
/// A message for the user.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.');
    match is_name && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(format!(
            "`{name}` is no name: use at most {MAX_NAME} letters, digits, `-`, `_`, `+`, `@` and dots"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::Command;
    use super::*;

    #[test]
    fn names_are_those_of_files_in_the_directory() {
        for name in ["a", "web-1.2_x", "a@b+c"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", ".a", "a/b", "a b", "\n", &"x".repeat(101)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_profile_that_could_not_be_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store(directory.path().join("a"));
        let (name, small) = (OsStr::new("x"), Profile::default());
        store.write(name, &small).unwrap();
        let large = Profile {
            command: Command {
                program: "x".repeat(MAX_SIZE as usize).into(),
                ..Command::default()
            },
            ..Profile::default()
        };
        let why = store.write(name, &large).unwrap_err();
        assert!(why.ends_with("too large for a profile"), "{why}");
        assert_eq!(store.read(name), Ok(Some(small)));
        assert_eq!(fs::read_dir(&store.0).unwrap().count(), 1);
    }

    #[test]
    fn profiles_are_written_read_listed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store(directory.path().join("a/b"));
        let name = OsStr::new("x");
        assert_eq!(store.read(name), Ok(None));
        assert_eq!(store.names(), Ok(vec![]));
        let profile = Profile {
            runs: 1,
            ..Profile::default()
        };
        store.write(name, &profile).unwrap();
        assert_eq!(store.read(name), Ok(Some(profile.clone())));
        assert_eq!(store.names(), Ok(vec!["x".into()]));
        assert_eq!(
            fs::metadata(store.path(name)).unwrap().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::metadata(&store.0).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(store.path(name), Permissions::from_mode(0o602)).unwrap();
        assert!(store.read(name).unwrap_err().contains("other users"));
        store.write(name, &profile).unwrap();
        fs::set_permissions(&store.0, Permissions::from_mode(0o777)).unwrap();
        assert!(store.read(name).unwrap_err().contains("other users"));
        assert!(
            store
                .write(name, &profile)
                .unwrap_err()
                .contains("other users")
        );
        fs::set_permissions(&store.0, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(
            (store.remove(name), store.remove(name)),
            (Ok(true), Ok(false))
        );
        std::os::unix::fs::symlink("/etc/passwd", store.path(name)).unwrap();
        assert!(store.read(name).is_err());
    }
}
