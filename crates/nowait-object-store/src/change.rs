//! Copies, renames and deletions of objects.
//!
//! All functions block.

use std::fs::{self, File, FileType, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nowait::Engine;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat, renameat_with};
use rustix::io::Errno;

use crate::durable::{self, Directory, Sync};
use crate::error::Error;
use crate::names::{link, publish_new, rename_new};
use crate::staged::{Replace, Staged, staged_path};

/// Copies an object: gives its file a second name, or else copies the bytes. If the object is a
/// symbolic link, the file is the one that it points to. An object that has the name is replaced at
/// once or not at all.
pub(crate) fn copy(
    engine: &Engine,
    from: &Path,
    to: &Path,
    replace: Replace,
    sync: Sync,
) -> Result<(), Error> {
    match copy_link(engine, from, to, replace, sync) {
        Err(error) if can_be_copied(&error, from) => {
            copy_bytes(engine, from, to, replace, sync).map(drop)
        }
        copied => copied,
    }
}

/// Returns true if the bytes of an object can be copied after this error of link(2). A directory is
/// no object, and never has a second name.
fn can_be_copied(error: &Error, from: &Path) -> bool {
    (error.is_without_link() || error.is_across_mounts()) && !from.is_dir()
}

/// Gives the file of an object a second name: a hard link.
fn copy_link(
    engine: &Engine,
    from: &Path,
    to: &Path,
    replace: Replace,
    sync: Sync,
) -> Result<(), Error> {
    let staged = with_parents(from, to, sync, || link_staged(from, to))?;
    let named = name(engine, from, &staged, to, replace, sync);
    // If both names are those of one file, rename(2) does nothing, and the name is left.
    let _ = fs::remove_file(&staged);
    named?.sync()
}

/// The file that bytes were copied from. It is open, so its identity is not that of a new file.
struct Source {
    id: (u64, u64),
    _file: File,
}

/// Copies the bytes of an object.
fn copy_bytes(
    engine: &Engine,
    from: &Path,
    to: &Path,
    replace: Replace,
    sync: Sync,
) -> Result<Source, Error> {
    let source = durable::open_object(engine, from, OFlags::empty())?;
    let source = source.as_fd().try_clone_to_owned();
    let source = File::from(source.map_err(Error::io("open", from))?);
    if replace == Replace::No && file_type(to).is_ok() {
        let (path, source) = (to.to_owned(), Errno::EXIST.into());
        return Err(Error::AlreadyExists { path, source });
    }
    let metadata = source.metadata().map_err(Error::io("fstat", from))?;
    Staged::copy(&source, &metadata, to.to_owned(), replace, sync)?;
    Ok(Source {
        id: (metadata.dev(), metadata.ino()),
        _file: source,
    })
}

/// Gives a staged link its name. Returns the directory that has changed.
fn name(
    engine: &Engine,
    from: &Path,
    staged: &Path,
    to: &Path,
    replace: Replace,
    sync: Sync,
) -> Result<Directory, Error> {
    if !file_type(staged)?.is_file() {
        return Err(Error::not_an_object(from));
    }
    let directory = Directory::of(to, sync)?;
    if sync == Sync::Yes {
        durable::sync_object(engine, staged)?;
    }
    match replace {
        // link(2) does not replace files, and rename(2) does.
        Replace::Yes => fs::rename(staged, to).map_err(Error::io("rename", to))?,
        Replace::No => publish_new(&directory, staged, to)?,
    }
    Ok(directory)
}

/// Gives a file a further name, which is not that of an object, and which no other call uses.
fn link_staged(from: &Path, to: &Path) -> Result<PathBuf, Error> {
    loop {
        let staged = unused_path(to);
        match link(from, &staged) {
            Ok(()) => return Ok(staged),
            Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A name beside `to` that is not that of an object, and which no other call uses. Processes in
/// several containers may have the same number, and a forked child has the random state of its
/// parent.
fn unused_path(to: &Path) -> PathBuf {
    staged_path(to, RandomState::new().hash_one(std::process::id()))
}

/// Renames an object. An object that has the new name is replaced. If the object is a symbolic
/// link, the file that it points to gets the new name, too, and the link is removed: a link may
/// lead elsewhere from another directory. Returns what is still to be synced.
pub(crate) fn rename(
    engine: &Engine,
    from: &Path,
    to: &Path,
    sync: Sync,
) -> Result<Option<Renamed>, Error> {
    let file_type = file_type(from)?;
    if file_type.is_symlink() {
        let directory = Directory::of(from, sync)?;
        copy(engine, from, to, Replace::Yes, sync)?;
        // If both paths are those of one name, it has become the name of the file.
        if self::file_type(from)?.is_symlink() {
            remove(from, None, &directory)?;
        }
        return Ok(None);
    }
    if !file_type.is_file() {
        return Err(Error::not_an_object(from));
    }
    let renamed = rename_with(engine, from, to, sync, |directories| match from == to {
        true => Ok(()),
        false => move_file(from, to, directories),
    });
    match renamed {
        Err(error) if error.is_across_mounts() => {
            let directory = Directory::of(from, sync)?;
            // An object that was durable stays so.
            let source = copy_bytes(engine, from, to, Replace::Yes, Sync::Yes)?;
            remove_copied(from, &source, None, &directory)?;
            Ok(None)
        }
        renamed => renamed,
    }
}

/// Gives an object another name, if no object has it. Returns what is still to be synced.
///
/// The file is renamed, so that another object that gets the old name meanwhile is not removed. If the
/// filesystem has no RENAME_NOREPLACE (renameat2(2)), if the object is a symbolic link, or across mounts, it
/// is copied, and the old name is removed.
pub(crate) fn rename_if_not_exists(
    engine: &Engine,
    from: &Path,
    to: &Path,
    clean_up_to: Option<&Path>,
    sync: Sync,
) -> Result<Option<Renamed>, Error> {
    if file_type(from)?.is_file() {
        let renamed = rename_with(engine, from, to, sync, |[from_directory, to_directory]| {
            rename_new([from_directory, to_directory], from, to)
        });
        match renamed {
            Err(Error::NotSupported { .. }) => {}
            Err(error) if error.is_across_mounts() => {}
            Err(error) => return Err(error),
            Ok(None) => {
                remove_empty(from, clean_up_to);
                return Ok(None);
            }
            Ok(Some(renamed)) => {
                let emptied = clean_up_to.map(|root| (from.to_owned(), root.to_owned()));
                return Ok(Some(Renamed { emptied, ..renamed }));
            }
        }
    }
    let directory = Directory::of(from, sync)?;
    match copy_link(engine, from, to, Replace::No, sync) {
        Ok(()) => remove(from, clean_up_to, &directory)?,
        Err(error) if can_be_copied(&error, from) => {
            let source = copy_bytes(engine, from, to, Replace::No, Sync::Yes)?;
            remove_copied(from, &source, clean_up_to, &directory)?;
        }
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// An object that was renamed and is still to be synced. If that fails because there is no
/// descriptor, it can be repeated, which the rename cannot.
#[derive(Debug)]
pub(crate) struct Renamed {
    to: PathBuf,
    /// The file that was synced before.
    synced: (u64, u64),
    /// Those of the old name and of the new one.
    directories: [Directory; 2],
    /// The old name, and the directory up to which empty ones above it are removed afterwards.
    emptied: Option<(PathBuf, PathBuf)>,
}

impl Renamed {
    /// Makes the change durable.
    pub(crate) fn sync(&self, engine: &Engine) -> Result<(), Error> {
        // Another writer may have replaced the object before it was renamed, or afterwards.
        if id(&self.to) != Some(self.synced) {
            match durable::sync_object(engine, &self.to) {
                Err(error) if error.is_not_found() => {}
                synced => drop(synced?),
            }
        }
        self.directories
            .iter()
            .rev()
            .try_for_each(Directory::sync)?;
        if let Some((from, root)) = &self.emptied {
            remove_empty(from, Some(root));
        }
        Ok(())
    }
}

/// Renames a regular file by a call that is given the directories of both names.
fn rename_with(
    engine: &Engine,
    from: &Path,
    to: &Path,
    sync: Sync,
    rename: impl Fn(&[Directory; 2]) -> Result<(), Error>,
) -> Result<Option<Renamed>, Error> {
    let synced = match sync {
        Sync::Yes => Some(durable::sync_object(engine, from)?),
        Sync::No => None,
    };
    let directories = with_parents(from, to, sync, || {
        let directories = [Directory::of(from, sync)?, Directory::of(to, sync)?];
        rename(&directories)?;
        Ok(directories)
    })?;
    Ok(synced.map(|synced| Renamed {
        to: to.to_owned(),
        synced,
        directories,
        emptied: None,
    }))
}

/// Removes an object whose bytes were copied.
fn remove_copied(
    from: &Path,
    source: &Source,
    clean_up_to: Option<&Path>,
    directory: &Directory,
) -> Result<(), Error> {
    let is_other = |now: Metadata| (now.dev(), now.ino()) != source.id;
    // Another writer has replaced the object meanwhile, or both paths lead to one name by two mounts
    // of a filesystem, which is the name of the copy by now.
    if fs::metadata(from).is_ok_and(is_other) {
        return Ok(());
    }
    remove(from, clean_up_to, directory)
}

/// Renames a file, also if both names are those of one file: rename(2) then does nothing.
/// `directories` are those of both names.
fn move_file(from: &Path, to: &Path, directories: &[Directory; 2]) -> Result<(), Error> {
    let [above_from, above_to] = directories;
    let rename = |above: &Directory, from: &Path| {
        let ((from_at, from), (to_at, name)) = (above.at(from), above_to.at(to));
        renameat(from_at, from, to_at, name).map_err(|e| Error::io("rename", to)(e.into()))
    };
    rename(above_from, from)?;
    let left = id(from);
    if left.is_none() || left != id(to) {
        return Ok(());
    }
    // The name is taken away first, because the object that has it may be another one by now.
    let staged = unused_path(to);
    match renameat_with(CWD, from, CWD, &staged, RenameFlags::NOREPLACE) {
        // Another call has removed it.
        Err(Errno::NOENT) => return Ok(()),
        taken => taken.map_err(|e| Error::io("rename", from)(e.into()))?,
    }
    let renamed = rename(above_to, &staged);
    if renamed.is_ok() {
        let _ = fs::remove_file(&staged);
    }
    renamed
}

/// Device and inode of a file, or `None` if there is none. Links are not followed.
fn id(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

fn file_type(path: &Path) -> Result<FileType, Error> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.file_type()),
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let path = path.to_owned();
            Err(Error::NotFound { path, source })
        }
        Err(source) => Err(Error::io("statx", path)(source)),
    }
}

/// Makes a change from one path to another. If the directory of the latter is missing, it is
/// created.
fn with_parents<T>(
    from: &Path,
    to: &Path,
    sync: Sync,
    change: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        match change() {
            Err(error) if error.is_not_found() => {
                if !from.exists() {
                    let (path, source) = (from.to_owned(), Errno::NOENT.into());
                    return Err(Error::NotFound { path, source });
                }
                durable::create_parents(to, sync)?;
            }
            result => return result,
        }
    }
}

/// Removes an object, and then the empty directories above it, up to `clean_up_to`.
pub(crate) fn delete(path: &Path, clean_up_to: Option<&Path>) -> Result<(), Error> {
    remove(path, clean_up_to, &Directory::of(path, Sync::No)?)
}

fn remove(path: &Path, clean_up_to: Option<&Path>, directory: &Directory) -> Result<(), Error> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let path = path.to_owned();
            return Err(Error::NotFound { path, source });
        }
        Err(source) => return Err(Error::io("unlink", path)(source)),
    }
    directory.sync()?;
    remove_empty(path, clean_up_to);
    Ok(())
}

/// Removes the empty directories above a path, up to `clean_up_to`.
fn remove_empty(path: &Path, clean_up_to: Option<&Path>) {
    if let Some(root) = clean_up_to {
        let mut above = path.ancestors().skip(1);
        while let Some(dir) = above.next()
            && dir != root
            && fs::remove_dir(dir).is_ok()
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A process in a container often has the number 1.
    #[test]
    fn processes_with_the_same_number_use_other_names() {
        const TEST: &str = "change::tests::processes_with_the_same_number_use_other_names";
        if std::env::var_os("NOWAIT_TEST_ALONE").is_some() {
            println!(
                "name {} {}",
                std::process::id(),
                unused_path(Path::new("/a")).display()
            );
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return slowdisk::skip_or_fail("not root");
        }
        let name = || {
            let mut command = Command::new("unshare");
            command
                .args(["--pid", "--fork"])
                .arg(std::env::current_exe().unwrap());
            command
                .args([TEST, "--exact", "--nocapture"])
                .env("NOWAIT_TEST_ALONE", "1");
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            let name = text
                .split("name 1 /a#")
                .nth(1)
                .map(|rest| rest.lines().next().unwrap().to_owned());
            name.unwrap_or_else(|| panic!("{text}"))
        };
        assert_ne!(name(), name());
    }
}
