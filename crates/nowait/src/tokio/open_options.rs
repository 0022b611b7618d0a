//! Options for opening files and creating directories: the builders of `tokio::fs`.

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::budget::in_turn;
use super::error::as_io;
use super::file::File;
use super::worker::on_worker;
use crate::engine::Engine;
use crate::file::{open_cached, with_contents};
use crate::handle::Handle;
use crate::metadata::Metadata;

/// Options for opening a file: `tokio::fs::OpenOptions`, with the rules of
/// [`std::fs::OpenOptions`].
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
    /// True if options other than `read` were set. The standard library does not expose their
    /// values.
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
    ($($(#[$doc:meta])* $name:ident: $to:ty,)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, to: $to) -> &mut OpenOptions {
            self.std.$name(to);
            self.more = true;
            self
        }
    )*};
}

impl OpenOptions {
    /// Options with nothing set.
    pub fn new() -> OpenOptions {
        OpenOptions {
            more: false,
            ..std::fs::OpenOptions::new().into()
        }
    }

    /// Opens the file for reading.
    pub fn read(&mut self, yes: bool) -> &mut OpenOptions {
        self.std.read(yes);
        self.reads = yes;
        self
    }

    set! {
        /// Opens the file for writing.
        write: bool,
        /// Opens the file for appending: writes go to the end of the file.
        append: bool,
        /// Truncates the file to length 0.
        truncate: bool,
        /// Creates the file if it does not exist.
        create: bool,
        /// Creates the file, and fails if it exists.
        create_new: bool,
        /// Sets the permission bits of a created file, before the umask is applied.
        mode: u32,
        /// Sets further flags of open(2).
        custom_flags: i32,
    }

    /// Uses this engine, with its mode and its limits, instead of the process's. (tokio has no such
    /// method.)
    pub fn engine(&mut self, engine: &Engine) -> &mut OpenOptions {
        self.engine = Some(engine.clone());
        self
    }

    /// Opens the file: open(2), in a worker, or at the first poll where [that does not
    /// block](crate::OpenOptions::open).
    ///
    /// # Errors
    /// The errors of [`std::fs::OpenOptions::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => Engine::process()?,
        };
        if self.reads && !self.more {
            let open = async { open_cached(path.as_ref()) };
            if let Some(opened) = in_turn(open, |open| open.as_ref().map(|_| 0)).await {
                let opened = opened?;
                let size = opened.metadata.len();
                return Ok(File::on(opened.into_private_handle(), engine).with_size(size));
            }
        }
        let (options, path) = (self.std.clone(), path.as_ref().to_owned());
        // The worker identifies the file, too: some filesystems ask a server.
        let open = move || Ok(Handle::of_any(options.open(path)?.into()));
        Ok(File::on(on_worker(&engine, None, open).await?, engine))
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The errors of open(2).
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for reading, and returns its basic metadata, too. If a worker opens it, the worker also reads it, if
    /// it is a regular file of at most `limit` bytes. The stream returns these bytes, unless the file was cloned before, or
    /// its descriptor was given out: then the file is read again. The position of the file is that of any file of which so
    /// many bytes were read. (tokio has no such function.)
    ///
    /// If the file is opened in the calling thread, nothing is read. No file is read on procfs, tracefs and debugfs, where a
    /// read may wait without end.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tokio::io::AsyncReadExt;
    /// let (mut file, metadata) = nowait::tokio::File::open_and_read("Cargo.toml", 64 << 10).await?;
    /// let mut bytes = Vec::with_capacity(metadata.len() as usize);
    /// file.read_to_end(&mut bytes).await?;
    /// assert!(bytes.starts_with(b"[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of open(2) and statx(2).
    pub async fn open_and_read(path: impl AsRef<Path>, limit: u64) -> io::Result<(File, Metadata)> {
        let engine = Engine::process()?;
        let open = async { open_cached(path.as_ref()) };
        if let Some(opened) = in_turn(open, |open| open.as_ref().map(|_| 0)).await {
            let opened = opened?;
            let metadata = opened.metadata;
            let file = File::on(opened.into_private_handle(), engine);
            return Ok((file.with_size(metadata.len()), metadata));
        }
        let path = path.as_ref().to_owned();
        let open = move || {
            let handle = Handle::of_any(std::fs::File::open(path)?.into());
            with_contents(handle, Some(limit)).map_err(as_io)
        };
        let (handle, metadata, contents) = on_worker(&engine, None, open).await?;
        let contents = contents.map(|(bytes, _)| bytes);
        let file = File::on(handle, engine).with_size(metadata.len());
        let file = match contents {
            Some(contents) => file.with_contents(contents),
            None => file,
        };
        Ok((file, metadata))
    }

    /// Opens a file for writing. Creates it, or truncates it if it exists.
    ///
    /// # Errors
    /// The errors of open(2).
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.open(path).await
    }

    /// Creates a file for reading and writing. Fails if it exists.
    ///
    /// # Errors
    /// The errors of open(2); `AlreadyExists` if the file exists.
    pub async fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(path).await
    }

    /// Options for opening a file, with nothing set.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}

/// Options for creating a directory: `tokio::fs::DirBuilder`.
#[derive(Debug, Default)]
pub struct DirBuilder {
    recursive: bool,
    mode: Option<u32>,
}

impl DirBuilder {
    /// Creates only the last directory of a path, with permission bits 0o777 before the umask is
    /// applied.
    pub fn new() -> DirBuilder {
        DirBuilder::default()
    }

    /// Also creates missing parents. An existing directory is then no error.
    pub fn recursive(&mut self, yes: bool) -> &mut DirBuilder {
        self.recursive = yes;
        self
    }

    /// Sets the permission bits, before the umask is applied.
    pub fn mode(&mut self, bits: u32) -> &mut DirBuilder {
        self.mode = Some(bits);
        self
    }

    /// Creates the directory, in a worker of the process's engine.
    ///
    /// # Errors
    /// The errors of [`std::fs::DirBuilder::create`].
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
