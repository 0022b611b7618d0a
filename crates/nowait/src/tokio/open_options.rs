//! How to open a file or make a directory: the builders of `tokio::fs`.

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::file::File;
use super::worker::on_worker;
use crate::engine::Engine;
use crate::file::open_cached;

/// How to open a file: `tokio::fs::OpenOptions`, with the rules of [`std::fs::OpenOptions`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("log");
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use nowait::tokio::OpenOptions;
/// use tokio::io::AsyncWriteExt;
/// let mut log = OpenOptions::new().append(true).create(true).open(&path).await?;
/// log.write_all(b"one more line\n").await?;
/// log.flush().await?;
/// assert_eq!(std::fs::read(&path)?, b"one more line\n");
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    std: std::fs::OpenOptions,
    reads: bool,
    /// Whether more was said than to read: what the standard library makes of that it keeps to itself.
    more: bool,
    engine: Option<Engine>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(std: std::fs::OpenOptions) -> OpenOptions {
        OpenOptions {
            std,
            reads: false,
            more: true,
            engine: None,
        }
    }
}

macro_rules! set {
    ($(#[$doc:meta])* $name:ident: $to:ty) => {
        $(#[$doc])*
        pub fn $name(&mut self, to: $to) -> &mut OpenOptions {
            self.std.$name(to);
            self.more = true;
            self
        }
    };
}

impl OpenOptions {
    /// Nothing is allowed yet.
    pub fn new() -> OpenOptions {
        OpenOptions {
            more: false,
            ..std::fs::OpenOptions::new().into()
        }
    }

    /// For reading.
    pub fn read(&mut self, yes: bool) -> &mut OpenOptions {
        self.std.read(yes);
        self.reads = yes;
        self
    }

    set!(
        /// For writing.
        write: bool
    );
    set!(
        /// For writing, always at the end.
        append: bool
    );
    set!(
        /// Empty it.
        truncate: bool
    );
    set!(
        /// Make the file if it is not there.
        create: bool
    );
    set!(
        /// Make the file, and fail if it is there.
        create_new: bool
    );
    set!(
        /// The permission bits of a file that is made, before the umask.
        mode: u32
    );
    set!(
        /// Further flags of open(2).
        custom_flags: i32
    );

    /// On this engine, instead of the process's; with it go its mode and its limits. (tokio has no
    /// such thing.)
    pub fn engine(&mut self, engine: &Engine) -> &mut OpenOptions {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens the file: open(2), on a worker; at once where [that waits for nothing](crate::OpenOptions::open).
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`] says.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => Engine::process()?,
        };
        if self.reads && !self.more {
            ::tokio::task::coop::consume_budget().await;
            if let Some(fd) = open_cached(path.as_ref()) {
                return Ok(File::on(fd, engine));
            }
        }
        let (options, path) = (self.std.clone(), path.as_ref().to_owned());
        let std = on_worker(&engine, None, move || options.open(path)).await?;
        Ok(File::on(std.into(), engine))
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2) says.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing: makes it, or empties it.
    ///
    /// # Errors
    /// As open(2) says.
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(path).await
    }

    /// Makes a file for reading and writing; fails if it is there.
    ///
    /// # Errors
    /// As open(2) says; `AlreadyExists`.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(path).await
    }

    /// Options to open a file with.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

/// How to make a directory: `tokio::fs::DirBuilder`.
#[derive(Debug, Default)]
pub struct DirBuilder {
    recursive: bool,
    mode: Option<u32>,
}

impl DirBuilder {
    /// Only the last directory of a path, with bits 0o777 before the umask.
    pub fn new() -> DirBuilder {
        DirBuilder::default()
    }

    /// Also those it lies in; then one that is there is no error.
    pub fn recursive(&mut self, yes: bool) -> &mut DirBuilder {
        self.recursive = yes;
        self
    }

    /// The permission bits, before the umask.
    pub fn mode(&mut self, bits: u32) -> &mut DirBuilder {
        self.mode = Some(bits);
        self
    }

    /// Makes the directory, on a worker of the process's engine.
    ///
    /// # Errors
    /// As [`std::fs::DirBuilder::create`] says.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut std = std::fs::DirBuilder::new();
        std.recursive(self.recursive);
        if let Some(bits) = self.mode {
            std.mode(bits);
        }
        let path = path.as_ref().to_owned();
        on_worker(&Engine::process()?, None, move || std.create(path)).await
    }
}
