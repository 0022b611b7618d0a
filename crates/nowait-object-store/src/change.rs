//! Copies, renames and deletions of objects.
//!
//! All functions block.

use std::fs::{self, FileType};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nowait::Engine;
use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};
use rustix::io::Errno;

use crate::durable::{self, Directory, Sync};
use crate::error::Error;
use crate::staged::{Replace, link, staged_path};

/// Gives the file of an object a second name: a hard link. If the object is a symbolic link, the
/// file is the one that it points to. An object that has the name is replaced at once or not at
/// all.
pub(crate) fn copy(
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
        Replace::No => link(staged, to)?,
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
/// lead elsewhere from another directory.
pub(crate) fn rename(engine: &Engine, from: &Path, to: &Path, sync: Sync) -> Result<(), Error> {
    let file_type = file_type(from)?;
    if file_type.is_symlink() {
        let directory = Directory::of(from, sync)?;
        copy(engine, from, to, Replace::Yes, sync)?;
        // If both paths are those of one name, it has become the name of the file.
        return if self::file_type(from)?.is_symlink() {
            remove(from, None, &directory)
        } else {
            Ok(())
        };
    }
    if !file_type.is_file() {
        return Err(Error::not_an_object(from));
    }
    let synced = match sync {
        Sync::Yes => Some(durable::sync_object(engine, from)?),
        Sync::No => None,
    };
    let directories = with_parents(from, to, sync, || {
        let directories = [Directory::of(from, sync)?, Directory::of(to, sync)?];
        if from != to {
            move_file(from, to, &directories)?;
        }
        Ok(directories)
    })?;
    // Another writer may have replaced the object before it was renamed, or afterwards.
    if synced.is_some_and(|synced| id(to) != Some(synced)) {
        match durable::sync_object(engine, to) {
            Err(error) if error.is_not_found() => {}
            synced => drop(synced?),
        }
    }
    directories.iter().rev().try_for_each(Directory::sync)
}

/// Gives an object another name, if no object has it: a copy, and then a deletion of the old name.
pub(crate) fn rename_if_not_exists(
    engine: &Engine,
    from: &Path,
    to: &Path,
    clean_up_to: Option<&Path>,
    sync: Sync,
) -> Result<(), Error> {
    file_type(from)?;
    let directory = Directory::of(from, sync)?;
    copy(engine, from, to, Replace::No, sync)?;
    remove(from, clean_up_to, &directory)
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
    if let Some(root) = clean_up_to {
        let mut above = path.ancestors().skip(1);
        while let Some(dir) = above.next()
            && dir != root
            && fs::remove_dir(dir).is_ok()
        {}
    }
    Ok(())
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
