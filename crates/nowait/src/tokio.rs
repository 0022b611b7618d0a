//! `tokio::fs`, by name and by behaviour, on the read path and the engine of this crate.
//!
//! Changing the `use` line of a program is enough: [`File`] has what `tokio::fs::File` has, and the
//! functions here have the names of those there. What differs is who does the work:
//!
//! - What the page cache holds is read at the first poll, in the caller, straight into the caller's
//!   memory. It takes part in tokio's cooperative budget, one unit for 16 KiB, so a task that only
//!   meets hits still lets the others run.
//! - A file that is opened for reading, or read as a whole, is opened at the first poll where [that
//!   waits for nothing](crate::OpenOptions::open).
//! - Everything else is an operation on an [`Engine`], whose threads wake the task. Nothing here
//!   needs tokio's I/O driver, its timers or its blocking pool, or that a runtime runs at all: a file
//!   can be opened on one runtime and used on another, and what is on its way when a runtime shuts
//!   down is still done.
//! - An engine that has as much in flight as it may makes these calls wait, not fail.
//! - In a forked child the parent's files give what is cached and refuse the rest; those that are opened
//!   there work.
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
//! // And what tokio's file has not: reads that need no position, many at once on one handle.
//! let (a, b) = tokio::join!(file.read_at(vec![0; 4], 1), file.read_at(vec![0; 4], 2));
//! assert_eq!((&a.buf[..], &b.buf[..]), (&b"pack"[..], &b"acka"[..]));
//! # Ok::<(), std::io::Error>(())
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod answer;
mod budget;
mod description;
mod error;
mod file;
mod open_options;
mod paths;
mod raw_fd;
mod read_buf;
mod read_dir;
mod stream;
mod transfer;
mod unread;
mod worker;

/// tokio's type of this name has the same methods.
#[doc(no_inline)]
pub use std::fs::FileTimes;

pub use file::File;
pub use open_options::{DirBuilder, OpenOptions};
pub use paths::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, try_exists, write,
};
pub use read_dir::{DirEntry, ReadDir, read_dir};
