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
//! assert_eq!((&a.held[..], &b.held[..]), (&b"pack"[..], &b"acka"[..]));
//! # Ok::<(), std::io::Error>(())
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod answer;
mod description;
mod file;
mod open_options;
mod paths;
mod raw_fd;
mod read_buf;
mod read_dir;
mod stream;
mod transfer;
mod unread;

use std::io;
use std::task::{Context, Poll};

use ::tokio::task::coop;

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

use crate::engine::Engine;
use crate::error::Error;
use crate::file::Trip;
use crate::handle::Handle;
use crate::op::{Call, Op};
use answer::Answer;

/// Makes a blocking call on a worker of an engine, on a file if it is about one. Dropped before a worker
/// has begun it, the call is made all the same.
async fn on_worker<T: Send + 'static>(
    engine: &Engine,
    file: Option<&Handle>,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    engine.check_process("call")?;
    let (mut trip, answer) = to_worker(file, call);
    let done = std::future::poll_fn(|cx| trip.poll(engine, cx)).await;
    done.result.map_err(as_io)?;
    answer.take()?
}

/// A call on its way to a worker, and where it leaves its result.
fn to_worker<T: Send + 'static>(
    file: Option<&Handle>,
    call: impl FnOnce() -> T + Send + 'static,
) -> (Trip, Answer<T>) {
    let (tell, answer) = Answer::new();
    let mut op = Call::new(move || tell.tell(call()));
    if let Some(file) = file {
        op = op.on(file);
    }
    (Trip::new(Op::from(op), None), answer)
}

/// Takes from a task's cooperative budget what a copy in its thread costs beyond the one unit that
/// every operation costs, so that a task of large hits keeps its event loop no longer than one of small
/// ones.
fn charge(copied: usize, cx: &mut Context<'_>) {
    for _ in 0..copied.saturating_sub(1) / COPIED_FOR_A_UNIT {
        match coop::poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            // Spent: the next operation has to wait for its turn.
            Poll::Pending => break,
        }
    }
}

/// Bytes. As many as take about as long to copy as a read of a page takes.
const COPIED_FOR_A_UNIT: usize = 16 << 10;

/// An error as `tokio::fs` gives it: the kernel's number, so that `raw_os_error` has it.
fn as_io(error: Error) -> io::Error {
    match error.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => error.into(),
    }
}
