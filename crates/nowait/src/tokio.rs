//! The functions and types of `tokio::fs`, on the read path and the engine of this crate.
//!
//! A program needs to change only its `use` line: [`File`] has the methods of `tokio::fs::File`,
//! and the functions here have the names of those there. Positional reads and writes, [`statx`] and
//! [`File::statx`] are not in tokio. The differences are:
//!
//! - Cached data is read at the first poll, in the calling thread, directly into the caller's
//!   memory. A task that has made 42 such reads in a row, or copied 504 KiB, yields to other tasks.
//!   A read takes 3 of the 128 units of tokio's cooperative budget for each 12 KiB.
//! - A file that is opened for reading, or read as a whole, is opened at the first poll where [that
//!   does not block](crate::OpenOptions::open). So is metadata asked for.
//! - [`File::read_to_end`] and [`File::read_to_string`] ask for the size of the file, and read it in as few reads as
//!   possible. They take the place of the methods of `AsyncReadExt` in calls on a [`File`].
//! - Everything else is an operation on an [`Engine`](crate::Engine), whose threads wake the task.
//!   No function here needs tokio's I/O driver, its timers, its blocking pool, or a running
//!   runtime. A file can be opened on one runtime and used on another. Operations in flight
//!   complete even if the runtime shuts down.
//! - A [paused clock](https://docs.rs/tokio/latest/tokio/time/fn.pause.html) stands still during
//!   these calls, as it does during those of tokio: one thread of the runtime's blocking pool waits
//!   meanwhile. It stands still for calls that begin while it is paused. The futures of
//!   [`crate::File`], of scans and of walks hold it as well.
//! - A write is accepted before it is made, as in tokio. Its error, such as ENOSPC, is returned
//!   once: by the next write, flush or shutdown. A flush after that returns `Ok`, although bytes
//!   are missing. `sync_all` does not return it.
//! - If an engine has reached its limit of operations in flight, these calls wait. They do not
//!   fail.
//! - In a forked child, files of the parent return cached data and metadata, and refuse everything
//!   else. Files opened in the child work.
//!
//! ```
//! use nowait::tokio::File;
//! use tokio::io::{AsyncReadExt, AsyncSeekExt};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let mut file = File::open("Cargo.toml").await?;
//! let mut head = [0; 9];
//! file.read_exact(&mut head).await?;
//! assert_eq!(&head, b"[package]");
//!
//! file.rewind().await?;
//! let mut text = String::new();
//! file.read_to_string(&mut text).await?;
//! assert!(text.contains("name = \"nowait\""));
//!
//! // Not in tokio: reads that need no position, many concurrently on one handle.
//! let (a, b) = tokio::join!(file.read_at(vec![0; 4], 1), file.read_at(vec![0; 4], 2));
//! assert_eq!((&a.buf[..], &b.buf[..]), (&b"pack"[..], &b"acka"[..]));
//! # Ok::<(), std::io::Error>(())
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod budget;
mod description;
mod error;
mod file;
mod metadata;
mod open_options;
mod paths;
mod raw_fd;
mod read_buf;
mod read_dir;
mod read_to_end;
mod stream;
mod transfer;
mod unread;
mod worker;

/// `tokio::fs::FileTimes` has the same methods.
#[doc(no_inline)]
pub use std::fs::FileTimes;

pub use file::File;
pub use open_options::{DirBuilder, OpenOptions};
pub use paths::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, statx,
    symlink, symlink_metadata, try_exists, write,
};
pub use read_dir::{DirEntry, ReadDir, read_dir};
