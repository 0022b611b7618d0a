//! File I/O on Linux that does not block the caller.
//!
//! [`File::read_at`] returns cached data immediately, in the calling thread. Reads that need the
//! device go to an asynchronous engine: an io_uring ring, or a pool of threads if io_uring is not
//! available. Each result reports how many bytes came from the page cache and how many from the
//! device.
//!
//! ```
//! let file = nowait::File::blocking_open("Cargo.toml")?;
//! let read = pollster::block_on(file.read_at(vec![0; 4096], 0));
//! let n = read.result?;
//! println!("{n} bytes, {} of them from the page cache", read.provenance.cached);
//! assert!(read.buf.starts_with(b"[package]"));
//! # Ok::<(), nowait::Error>(())
//! ```
//!
//! The futures need no runtime. Any executor can poll them.
//!
//! # Quick start
//! ```toml
//! [dependencies]
//! nowait = { version = "0.1", features = ["tokio"] }
//! ```
//!
//! A program on tokio changes its `use` lines from `tokio::fs` to `nowait::tokio`. A program on
//! another executor uses [`File`]. A program without an executor calls the blocking forms, or
//! drives a [`LocalEngine`](engine::LocalEngine) in its own loop.
//!
//! # Types
//! | to | use |
//! |---|---|
//! | read and write one file at offsets | [`File`], [`OpenOptions`] |
#![cfg_attr(
    feature = "tokio",
    doc = "| replace `tokio::fs` | [`nowait::tokio`](mod@tokio) |"
)]
#![cfg_attr(
    not(feature = "tokio"),
    doc = "| replace `tokio::fs` | `nowait::tokio` (feature `tokio`) |"
)]
//! | read many small files | [`read_files()`] |
//! | read a mapped file by pointer, without a system call | [`Mapping`] |
//! | list a directory with metadata and extended attributes | [`Scan`]; [`scan::readahead`] |
//! | list a tree | [`Walk`] |
//! | run any operation: open, fsync, fallocate, statx, … | [`op`], [`Engine::run`], [`Engine::submit`] |
//! | keep many operations in flight in one thread | [`engine::LocalEngine`], [`Completion`] |
//! | read cached data from any descriptor, without an engine | [`read::cached`] |
//! | learn how much of a file is in the page cache | [`residency`] |
//! | give memory to an operation | [`buffer`]: [`IoBuf`], [`IoBufMut`] |
//! | learn what the kernel and the sandbox allow | [`support`] |
//! | learn the type and the device of a filesystem | [`filesystem`] |
//! | learn if trying the cache first saves time | [`cost`] |
//! | count the operations of an engine | [`stats`] |
//!
//! `File` does not implement the `AsyncRead`, `AsyncWrite` and `AsyncSeek` traits of `futures`: use
//! `nowait::tokio::File` with `tokio_util::compat`.
//!
//! # Eager and strict mode
//! In *eager mode* ([`Mode::Eager`], the default) a read tries the page cache first, with
//! preadv2(2) and `RWF_NOWAIT`. If the data is not cached, preadv2 returns `EAGAIN`, and the read
//! goes to the engine. Since about Linux 6.12, the failed preadv2 also submits a read to the
//! device. The device then starts earlier, but the calling thread spends time on the submission.
//!
//! In *strict mode* ([`Mode::Strict`]) the calling thread first asks the kernel whether the data is
//! cached, and reads only cached data. It does not submit reads to the device.
//!
//! # Features
//! | feature | default | content |
//! |---|---|---|
//! | `tokio` | no | [`nowait::tokio`](https://docs.rs/nowait), and with it tokio's `io-util` traits |
//! | `paused-clock` | with `tokio` | a [paused clock] of tokio stands still while operations are in flight |
//! | `bytes` | yes | `Bytes` and `BytesMut` as buffers |
//!
//! [paused clock]: https://docs.rs/tokio/latest/tokio/time/fn.pause.html
//!
//! # Errors
//! An [`Error`] has the name of the operation, the path if it is known, and an [`ErrorKind`]. It is
//! shown as `open /x: No such file or directory (os error 2)`, and converts into [`std::io::Error`]
//! with the same errno. A call that takes a buffer returns it with the result, also if it fails
//! ([`BufResult`]).
//!
//! # Cancellation
//! A future may be dropped at any time, which cancels its operation. An operation that the kernel
//! has started keeps its buffer until it is complete, and the bytes that it reads are lost. A write
//! whose future was dropped may still take place, in whole or in part. A read at an offset changes
//! nothing, so it can be repeated.
//!
//! # Threads and forks
//! [`Engine`] and [`File`] are `Send + Sync`, and clones are cheap. A [`File`] without an engine of
//! its own uses the engine of the process ([`Engine::process`]), which is made on first use. A
//! [`LocalEngine`](engine::LocalEngine) belongs to one thread.
//!
//! A child of fork(2) has neither the threads nor the ring of its parent. There, files of the
//! parent return cached data, and every other operation fails with [`ErrorKind::Forked`]. Files and
//! engines that the child makes work.
//!
//! # Platforms
//! Linux on x86-64 and aarch64. All tests run on x86-64 with Linux 6.18, the library's also with
//! 6.1 and 6.12, some of them on the newest of Debian unstable. A selection of them runs on aarch64 with
//! Linux 6.1, in an emulator. The library makes a system call once to learn if it is available. It
//! does not parse the kernel's version.
//!
//! | Linux | adds |
//! |---|---|
//! | 4.14 | reads that do not wait (`RWF_NOWAIT`), on ext4, xfs and others |
//! | 5.11 | io_uring engines |
//! | 5.12 | opening cached paths in the calling thread |
//! | 5.14 | mappings (`MADV_POPULATE_READ`) |
//! | 5.19 | registered files |
//! | 6.5 | residency by cachestat(2); older kernels have only mincore(2) |
//! | 6.12 | [`Wait::Batch`](engine::Wait::Batch) in one system call |
//!
//! # Versions
//! Rust 1.88 or newer. A release that needs a newer Rust has a new minor version. Before 1.0, a
//! release with a new minor version may change the interface. The following are not part of the
//! interface: the text of errors, the way in which a read is served, the thread that runs an
//! operation, and the numbers in [`stats`].

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "unit tests know their numbers"
    )
)]

pub mod buffer;
pub mod engine;
mod error;
mod file;
mod handle;
#[cfg(any(fuzzing, nowait_internals))]
pub mod internals;
mod kernel;
pub mod mapping;
mod metadata;
pub mod op;
mod policy;
pub mod read;
pub mod read_files;
#[doc(inline)]
pub use nowait_residency as residency;
pub mod scan;
mod sys;
mod task_group;
#[cfg(feature = "tokio")]
pub mod tokio;
mod user_code;
pub mod walk;
pub mod write;

pub use buffer::{IoBuf, IoBufExt, IoBufMut};
pub use engine::Engine;
pub use engine::completion::{BufResult, Completion, Ticket};
pub use error::{Error, ErrorKind, Result};
pub use file::{Close, File, Open, OpenOptions, OpenedFile, ReadAt, SyncFile, WriteAt, reopen};
pub use handle::Handle;
pub use kernel::alignment::{Alignment, AtomicWrites};
pub use kernel::flags::RwFlags;
pub use kernel::{filesystem, support};
pub use mapping::Mapping;
pub use metadata::{FileType, Metadata, StatxMask};
pub use nowait_residency::DisplayPath;
pub use policy::mode::Mode;
pub use policy::provenance::{Provenance, ServedBy};
pub use policy::{cost, stats};
pub use read_files::{FileContents, ReadFiles, read_files};
pub use scan::Scan;
pub use sys::process::Owner;
pub use walk::Walk;

#[cfg(test)]
mod test_file {
    //! A file for unit tests. Miri and old kernels' guests run them without the sources.

    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A file with known bytes, which is removed with this value.
    pub(crate) struct TestFile {
        pub(crate) path: PathBuf,
        pub(crate) bytes: Vec<u8>,
    }

    impl TestFile {
        pub(crate) fn new() -> TestFile {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(format!("nowait-unit-{process}-{number}"));
            let bytes: Vec<u8> = (0..1500u32).map(|i| (i * 7 + i / 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            TestFile { path, bytes }
        }
    }

    impl Drop for TestFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
