//! The operations that are counted. A row is a program: it does its operation a given number of times.

mod aio;
mod capi;
mod engine;
mod library;
mod peers;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::data::{Failure, advise, load};

/// The file, of a row that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// It is cached.
    Cached,
    /// It is cached, on overlayfs.
    Overlay,
    /// It is not cached, on a slow disk: a read that has started is not done before the next call.
    Cold,
}

/// An operation.
pub struct Row {
    /// Its name in the table and on the command line.
    pub name: &'static str,
    /// The state of its file.
    pub data: Data,
    /// The environment of its program.
    pub environment: &'static [(&'static str, &'static str)],
    /// True if libnowait_aio.so is preloaded.
    pub preload: bool,
    /// The number of threads that the program starts before its operations. With more than one
    /// thread the C library's calls are longer.
    idle_threads: usize,
    run: fn(&Path, usize) -> Result<(), Failure>,
}

impl Row {
    const fn new(name: &'static str, run: fn(&Path, usize) -> Result<(), Failure>) -> Row {
        Row {
            name,
            data: Data::Cached,
            environment: &[],
            preload: false,
            idle_threads: 1,
            run,
        }
    }

    const fn data(mut self, data: Data) -> Row {
        self.data = data;
        self
    }

    /// valgrind runs one thread at a time, and knows no call of io_uring that waits. The owner of the ring of
    /// a shared engine would stop all threads.
    const fn threads_backend(mut self) -> Row {
        self.environment = &[("NOWAIT_BACKEND", "threads")];
        self
    }

    /// The two numbers of operations. Their difference is a multiple of 64, the size of batches, and of
    /// the periods after which the library samples.
    pub fn lengths(&self) -> [usize; 2] {
        match self.data {
            Data::Cached | Data::Overlay => [2_048, 12_288],
            Data::Cold => [256, 1_280],
        }
    }

    /// Does the operation `count` times.
    pub fn run(&self, file: &Path, count: usize) -> Result<(), Failure> {
        for _ in 0..self.idle_threads {
            std::thread::spawn(std::thread::park);
        }
        match self.data {
            Data::Cached | Data::Overlay => load(file)?,
            Data::Cold => advise(File::open(file)?.as_raw_fd(), libc::POSIX_FADV_DONTNEED)?,
        }
        (self.run)(file, count)
    }
}

/// All rows, in the order of the table.
pub static ROWS: &[Row] = &[
    Row::new("known", library::known),
    Row::new("read::cached", library::read_cached),
    Row::new("read::try_cached", library::try_cached_of),
    Row::new("File::blocking_read_at", library::blocking_read_at).threads_backend(),
    Row::new("File::read_at", library::read_at).threads_backend(),
    Row::new("File::read_at, overlayfs", library::read_at)
        .data(Data::Overlay)
        .threads_backend(),
    Row::new("File::read_at, miss, threads", library::read_at_miss)
        .data(Data::Cold)
        .threads_backend(),
    Row::new("tokio::File::read_exact", library::tokio_read_exact).threads_backend(),
    Row::new("LocalEngine, hit, boxed", engine::hit_boxed),
    Row::new("LocalEngine, hit, raw", engine::hit_raw),
    Row::new("LocalEngine, miss, ring", engine::miss).data(Data::Cold),
    Row::new("LocalEngine, miss, threads", engine::miss)
        .data(Data::Cold)
        .threads_backend(),
    Row::new("LocalEngine, 64 nops", engine::nops),
    Row::new("LocalEngine, 64 hits, boxed", engine::hits_boxed),
    Row::new("LocalEngine, 64 hits, raw", engine::hits_raw),
    Row::new("C: nw_pread_cached", capi::pread_cached),
    Row::new("C: nw_submit_batch, 64 nops", capi::nops),
    Row::new("C: nw_submit_batch, 64 hits", capi::hits),
    Row {
        preload: true,
        ..Row::new("aio_read, hit", aio::read)
    },
    Row::new("glibc: aio_read, hit", aio::read),
    Row::new("libc: pread", peers::pread),
    Row {
        idle_threads: 0,
        ..Row::new("libc: pread, one thread", peers::pread)
    },
    Row::new("io-uring: 64 nops", peers::ring_nops),
    Row::new("io-uring: 64 hits", peers::ring_hits),
    Row::new("compio: read_at", peers::compio_read_at),
];
