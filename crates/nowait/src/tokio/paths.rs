//! Operations on paths: the functions of `tokio::fs`, on the process's engine. Workers make the
//! calls that may block.

use std::ffi::CString;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::budget::in_turn;
use super::error::as_io;
use super::metadata::{self, at_once};
use super::worker::on_worker;
use crate::engine::Engine;
use crate::file::open_cached;
use crate::kernel::filesystem::Filesystem;
use crate::metadata::StatxMask;
use crate::op::Statx;
use crate::policy::provenance::{Provenance, ServedBy};
use crate::sys;

/// Runs one call of [`std::fs`] with one path.
async fn about<T: Send + 'static>(
    path: impl AsRef<Path>,
    call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.as_ref().to_owned();
    on_worker(&Engine::process()?, None, move || call(&path)).await
}

/// Runs one call of [`std::fs`] with two paths.
async fn about_both<T: Send + 'static>(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    call: impl FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let to = to.as_ref().to_owned();
    about(from, move |from| call(from, &to)).await
}

/// Functions that call the one of [`std::fs`] in a worker, with one path or with two.
macro_rules! calls {
    ($(#[$doc:meta])* $name:ident(path) -> $type:ty = $call:path; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("The errors of [`", stringify!($call), "`].")]
        pub async fn $name(path: impl AsRef<Path>) -> io::Result<$type> {
            about(path, |path| $call(path)).await
        }
        calls! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident($from:ident, $to:ident) -> $type:ty = $call:path; $($rest:tt)*) => {
        $(#[$doc])*
        ///
        /// # Errors
        #[doc = concat!("The errors of [`", stringify!($call), "`].")]
        pub async fn $name($from: impl AsRef<Path>, $to: impl AsRef<Path>) -> io::Result<$type> {
            about_both($from, $to, |from, to| $call(from, to)).await
        }
        calls! { $($rest)* }
    };
    () => {};
}

calls! {
    /// Copies a file's contents and permission bits, in the kernel if possible: [`std::fs::copy`].
    copy(from, to) -> u64 = std::fs::copy;
    /// Returns the absolute path with all symbolic links resolved: [`std::fs::canonicalize`].
    canonicalize(path) -> PathBuf = std::fs::canonicalize;
    /// Creates a directory: [`std::fs::create_dir`].
    create_dir(path) -> () = std::fs::create_dir;
    /// Creates a directory and its missing parents: [`std::fs::create_dir_all`].
    create_dir_all(path) -> () = std::fs::create_dir_all;
    /// Removes an empty directory: [`std::fs::remove_dir`].
    remove_dir(path) -> () = std::fs::remove_dir;
    /// Removes a directory and its contents: [`std::fs::remove_dir_all`].
    remove_dir_all(path) -> () = std::fs::remove_dir_all;
    /// Removes a file: [`std::fs::remove_file`].
    remove_file(path) -> () = std::fs::remove_file;
    /// Renames a file or directory: [`std::fs::rename`].
    rename(from, to) -> () = std::fs::rename;
    /// Creates a hard link: [`std::fs::hard_link`].
    hard_link(original, link) -> () = std::fs::hard_link;
    /// Creates a symbolic link: [`std::os::unix::fs::symlink`].
    symlink(original, link) -> () = std::os::unix::fs::symlink;
}

/// Asks in the calling thread, or else in a worker, by the function of [`std::fs`].
async fn ask<T: Send + 'static>(
    path: &Path,
    in_caller: impl FnOnce(&Path) -> Option<io::Result<T>>,
    in_worker: fn(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let ask = move |path: &Path| {
        let answer = in_worker(path);
        metadata::remember(path);
        answer
    };
    match at_once(|| in_caller(path)).await {
        Some(answer) => answer,
        None => about(path, ask).await,
    }
}

/// Reads a file that can be opened in the calling thread without blocking. The engine reads what is
/// not cached. `None` if it cannot be opened so, or is larger than the engine's copy limit, or if it may have changed
/// while the engine has read it: then a worker reads it.
async fn contents(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let engine = Engine::process()?;
    let read = async {
        let Some(opened) = open_cached(path).transpose()? else {
            return Ok(None);
        };
        let size = usize::try_from(opened.metadata.len()).unwrap_or(usize::MAX);
        if size > engine.policy().copy_limit {
            return Ok(None);
        }
        let limit = engine.policy().copy_limit;
        let handle = opened.into_private_handle().expecting_end(size as u64);
        let file = crate::File::of(handle, engine);
        // With one more byte the read is short at the end of the file.
        let room = (size + 1).min(limit);
        let done = file.read_at(Vec::with_capacity(room), 0).await;
        let Provenance {
            served_by, cached, ..
        } = done.provenance;
        let copied = (served_by == ServedBy::Caller).then_some(cached);
        let (n, bytes) = done.into_result().map_err(as_io)?;
        // The file may have been written anew while the engine read it, or may be longer now.
        let is_whole = copied.is_some() && n < room;
        let is_whole = is_whole || file.len().is_ok_and(|size| size == n as u64);
        Ok(is_whole.then_some((bytes, copied)))
    };
    let copied = |read: &io::Result<Option<(_, Option<usize>)>>| read.as_ref().ok()?.as_ref()?.1;
    let read = in_turn(read, copied).await?;
    Ok(read.map(|(bytes, _)| bytes))
}

/// Opens a file and records its filesystem. Called by a worker.
fn known(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(path)?;
    if let Ok(known) = sys::stat::known(file.as_fd()) {
        Filesystem::remember(file.as_fd(), &known);
    }
    Ok(file)
}

/// Reads the contents of a file: [`std::fs::read`]. The result is ready at the first poll if the
/// file [can be opened so](crate::OpenOptions::open), is cached, and is not larger than the engine's
/// copy limit.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// assert!(nowait::tokio::read("Cargo.toml").await?.starts_with(b"[package]"));
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The errors of [`std::fs::read`].
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    match contents(path.as_ref()).await? {
        Some(bytes) => Ok(bytes),
        None => {
            let read = |path: &Path| {
                let mut bytes = Vec::new();
                known(path)?.read_to_end(&mut bytes)?;
                Ok(bytes)
            };
            about(path, read).await
        }
    }
}

/// Reads the contents of a file as a string: [`std::fs::read_to_string`].
///
/// # Errors
/// The errors of [`std::fs::read_to_string`]; `InvalidData` if the contents are not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    match contents(path.as_ref()).await? {
        Some(bytes) => String::from_utf8(bytes).map_err(|_| {
            io::Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8")
        }),
        None => about(path, |path| io::read_to_string(known(path)?)).await,
    }
}

/// Creates or truncates a file and writes all of `contents`: [`std::fs::write`]. The bytes are
/// copied first, as in `tokio::fs::write`.
///
/// An error of close(2) is discarded, as in the standard library: see
/// [`nowait::File::close`](crate::File::close).
///
/// # Errors
/// The errors of [`std::fs::write`].
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let contents = contents.as_ref().to_owned();
    about(path, move |path| fs::write(path, contents)).await
}

/// Returns the metadata of a path, following symbolic links: [`std::fs::metadata`], stat(2).
///
/// The result is ready at the first poll if the path is cached, on a filesystem of type ext4, xfs or
/// f2fs on which a file was opened before. Since Linux 6.8 it is on btrfs and tmpfs, too, and on
/// overlayfs, if its layers are local; and it is enough that a file was asked for its metadata before, except on
/// overlayfs.
///
/// # Errors
/// The errors of [`std::fs::metadata`].
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    ask(path.as_ref(), metadata::of_path, |path| fs::metadata(path)).await
}

/// Returns the metadata of a path, without following a symbolic link at its end:
/// [`std::fs::symlink_metadata`], lstat(2). The result is ready at the first poll in the cases of
/// [`metadata`].
///
/// # Errors
/// The errors of [`std::fs::symlink_metadata`].
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let in_worker = |path: &Path| fs::symlink_metadata(path);
    ask(path.as_ref(), metadata::of_link, in_worker).await
}

/// Returns true if the path exists, and an error if that cannot be found out: [`std::fs::exists`].
/// The result is ready at the first poll in the cases of [`metadata`].
///
/// # Errors
/// The errors of [`std::fs::exists`].
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    ask(path.as_ref(), metadata::exists, |path| fs::exists(path)).await
}

/// Returns the target of a symbolic link: [`std::fs::read_link`]. The result is ready at the first
/// poll in the cases of [`metadata`] on ext4, xfs and tmpfs, if the filesystem has stored the target in
/// the inode and the access time is not due (mount option `relatime`).
///
/// # Errors
/// The errors of [`std::fs::read_link`].
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    ask(path.as_ref(), metadata::target, |path| fs::read_link(path)).await
}

/// Returns these fields of the metadata of a path, following symbolic links: statx(2) (Linux 4.11).
/// (tokio has no such function.) The result is ready at the first poll in the cases of [`metadata`], and
/// on overlayfs if its layers are local.
///
/// # Errors
/// The errors of [`std::fs::metadata`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use nowait::StatxMask;
/// let metadata = nowait::tokio::statx("Cargo.toml", StatxMask::TYPE | StatxMask::SIZE).await?;
/// assert!(metadata.is_file() && metadata.len() > 0);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn statx(path: impl AsRef<Path>, fields: StatxMask) -> io::Result<crate::Metadata> {
    let path = path.as_ref();
    let name = CString::new(path.as_os_str().as_bytes())?;
    let statx = Statx::new(name, 0, fields);
    match at_once(|| statx.try_cached().map(|it| it.map_err(as_io))).await {
        Some(metadata) => metadata,
        None => about(path, move |_| statx.blocking().map_err(as_io)).await,
    }
}

/// Changes the permission bits of a file: [`std::fs::set_permissions`].
///
/// # Errors
/// The errors of [`std::fs::set_permissions`].
pub async fn set_permissions(path: impl AsRef<Path>, to: Permissions) -> io::Result<()> {
    about(path, move |path| fs::set_permissions(path, to)).await
}
