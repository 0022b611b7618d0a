//! What is done to a path, by a worker of the process's engine: the functions of `tokio::fs`.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::worker::on_worker;
use crate::engine::Engine;
use crate::file::open_cached;
use crate::filesystem::Filesystem;
use crate::read::{self, Cached};
use crate::sys;

/// Makes one call of [`std::fs`] about one path.
async fn about<T: Send + 'static>(
    path: impl AsRef<Path>,
    call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.as_ref().to_owned();
    on_worker(&Engine::process()?, None, move || call(&path)).await
}

/// Makes one call of [`std::fs`] about two paths.
async fn about_both<T: Send + 'static>(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    call: impl FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let to = to.as_ref().to_owned();
    about(from, move |from| call(from, &to)).await
}

/// The bytes of a file that can be opened, and read to its end, in the caller without waiting.
async fn cached(path: &Path) -> io::Result<Option<Vec<u8>>> {
    ::tokio::task::coop::consume_budget().await;
    let most = Engine::process()?.policy().copy_limit;
    Ok(open_cached(path).and_then(|file| {
        let size = usize::try_from(sys::stat::size(file.as_fd()).ok()?).ok()?;
        if size >= most {
            return None;
        }
        // Room for one more, so that it comes short where it ends.
        let mut bytes = vec![0; size + 1];
        match read::cached(&file, &mut bytes[..], 0) {
            Ok(Cached::All(n)) if n <= size => {
                bytes.truncate(n);
                Some(bytes)
            }
            _ => None,
        }
    }))
}

/// Opens a file by a worker, whose filesystem is known from then on.
fn known(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(path)?;
    if let Ok(identity) = sys::stat::identity(file.as_fd()) {
        Filesystem::of(identity.filesystem);
    }
    Ok(file)
}

/// All of a file's bytes: [`std::fs::read`]. At once, if it is [opened
/// so](crate::OpenOptions::open), cached and not large.
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
/// As there.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    match cached(path.as_ref()).await? {
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

/// All of a file's text: [`std::fs::read_to_string`].
///
/// # Errors
/// As there; `InvalidData` if it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let bytes = cached(path.as_ref()).await?;
    match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(text) => Ok(text),
        None => about(path, |path| io::read_to_string(known(path)?)).await,
    }
}

/// Makes or empties a file and writes all of `contents`: [`std::fs::write`]. The bytes are copied
/// first, as `tokio::fs::write` does.
///
/// # Errors
/// As there.
pub async fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let contents = contents.as_ref().to_owned();
    about(path, move |path| fs::write(path, contents)).await
}

/// Copies a file's bytes and permission bits, in the kernel where it can: [`std::fs::copy`].
///
/// # Errors
/// As there.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    about_both(from, to, |from, to| fs::copy(from, to)).await
}

/// What stat(2) says: [`std::fs::metadata`].
///
/// # Errors
/// As there.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    about(path, |path| fs::metadata(path)).await
}

/// What lstat(2) says: [`std::fs::symlink_metadata`].
///
/// # Errors
/// As there.
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    about(path, |path| fs::symlink_metadata(path)).await
}

/// Whether there is something: [`std::fs::exists`].
///
/// # Errors
/// As there: when it can't be told.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    about(path, |path| fs::exists(path)).await
}

/// The absolute path without links: [`std::fs::canonicalize`].
///
/// # Errors
/// As there.
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    about(path, |path| fs::canonicalize(path)).await
}

/// Makes a directory: [`std::fs::create_dir`].
///
/// # Errors
/// As there.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    about(path, |path| fs::create_dir(path)).await
}

/// Makes a directory and those it lies in: [`std::fs::create_dir_all`].
///
/// # Errors
/// As there.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    about(path, |path| fs::create_dir_all(path)).await
}

/// Removes an empty directory: [`std::fs::remove_dir`].
///
/// # Errors
/// As there.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    about(path, |path| fs::remove_dir(path)).await
}

/// Removes a directory with all that is in it: [`std::fs::remove_dir_all`].
///
/// # Errors
/// As there.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    about(path, |path| fs::remove_dir_all(path)).await
}

/// Removes a file: [`std::fs::remove_file`].
///
/// # Errors
/// As there.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    about(path, |path| fs::remove_file(path)).await
}

/// Gives a file another name: [`std::fs::rename`].
///
/// # Errors
/// As there.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    about_both(from, to, |from, to| fs::rename(from, to)).await
}

/// Gives a file a further name: [`std::fs::hard_link`].
///
/// # Errors
/// As there.
pub async fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    about_both(original, link, |from, to| fs::hard_link(from, to)).await
}

/// Makes a symbolic link: [`std::os::unix::fs::symlink`].
///
/// # Errors
/// As there.
pub async fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    about_both(original, link, |from, to| {
        std::os::unix::fs::symlink(from, to)
    })
    .await
}

/// Where a symbolic link leads: [`std::fs::read_link`].
///
/// # Errors
/// As there.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    about(path, |path| fs::read_link(path)).await
}

/// Changes permission bits: [`std::fs::set_permissions`].
///
/// # Errors
/// As there.
pub async fn set_permissions(path: impl AsRef<Path>, to: Permissions) -> io::Result<()> {
    about(path, move |path| fs::set_permissions(path, to)).await
}
