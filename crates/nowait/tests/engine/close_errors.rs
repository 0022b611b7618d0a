//! The error of close(2) is reported, and close(2) is called once.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use nowait::engine::{Engine, Options};
use nowait::{File, OpenOptions};
use rustix::io::Errno;
use slowdisk::ServedFlush;

use crate::common::files::{patterned, scratch};
use crate::common::shared_engine::each_shared;
use crate::common::wait::wait_until;

type Close = fn(File) -> nowait::Result<()>;

const BOTH: [Close; 2] = [
    |file| pollster::block_on(file.close()),
    File::blocking_close,
];

/// A file with bytes on a filesystem where close(2) fails.
fn written(engine: &Engine, served: &ServedFlush) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).engine(engine);
    let file = options.blocking_open(served.path().join("file")).unwrap();
    file.blocking_write_all_at(b"bytes", 0).unwrap();
    file
}

/// Runs a test on both backends, with both forms of the call.
fn each(errno: Errno, test: impl Fn(&Engine, &ServedFlush, Close)) {
    each_shared(Options::new(), |engine| {
        for close in BOTH {
            let served = ServedFlush::new(errno.raw_os_error()).unwrap();
            test(engine, &served, close);
        }
    });
}

fn refused(closed: nowait::Result<()>, errno: Errno, path: &Path) {
    let error = closed.unwrap_err();
    assert_eq!(error.errno(), Some(errno.raw_os_error()));
    assert_eq!((error.operation(), error.path()), ("close", Some(path)));
}

/// The number of descriptors of this process that are open for a file.
fn descriptors(path: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    open.filter(|to| to == path).count()
}

#[test]
fn an_error_of_close_is_returned_and_close_is_not_repeated() {
    slowdisk::require!(slowdisk::available());
    for errno in [Errno::DQUOT, Errno::IO, Errno::INTR] {
        each(errno, |engine, served, close| {
            let path = served.path().join("file");
            refused(close(written(engine, served)), errno, &path);
            assert_eq!((served.flushes(), descriptors(&path)), (1, 0));
            let mut reads = OpenOptions::new();
            let file = reads.read(true).engine(engine).blocking_open(&path);
            refused(close(file.unwrap()), errno, &path);
            assert_eq!((served.flushes(), descriptors(&path)), (2, 0));
        });
    }
}

#[test]
fn a_clone_is_closed_on_its_own() {
    slowdisk::require!(slowdisk::available());
    each(Errno::DQUOT, |engine, served, close| {
        let path = served.path().join("file");
        let file = written(engine, served);
        let clone = file.clone();
        refused(close(file), Errno::DQUOT, &path);
        assert_eq!((served.flushes(), descriptors(&path)), (1, 1));
        let mut bytes = [0; 5];
        clone.blocking_read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"bytes");
        refused(close(clone), Errno::DQUOT, &path);
        assert_eq!((served.flushes(), descriptors(&path)), (2, 0));
    });
}

#[test]
fn a_dropped_future_closes_the_file() {
    slowdisk::require!(slowdisk::available());
    each_shared(Options::new(), |engine| {
        let served = ServedFlush::new(Errno::DQUOT.raw_os_error()).unwrap();
        drop(written(engine, &served).close());
        let path = served.path().join("file");
        wait_until("the file is closed", || descriptors(&path) == 0);
        // close(2) frees the number before the filesystem flushes.
        wait_until("the filesystem flushes", || served.flushes() > 0);
        assert_eq!(served.flushes(), 1);
    });
}

#[test]
fn a_file_that_was_only_read_is_closed_at_the_first_poll() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", 4096);
    each_shared(Options::new(), |engine| {
        let mut reads = OpenOptions::new();
        let file = reads.read(true).engine(engine).blocking_open(&path);
        let close = pin!(file.unwrap().close());
        let polled = close.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(()))), "{polled:?}");
        assert_eq!(descriptors(&path), 0);
    });
}
