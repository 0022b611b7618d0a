//! What was to be durable is on the device, and the device was told to keep it, in that order.

#[path = "common/engines.rs"]
mod engines;

use engines::*;
use nowait::engine::{Backend, Chain, Options};
use nowait::op::{Fsync, Op, Write};
use nowait::{Handle, RwFlags};
use slowdisk::{Filesystem, SlowDisk, TestMount, extents, require};

const LEN: usize = 8192;

/// A file on a disk that keeps a log.
struct Logged {
    file: Handle,
    start: u64,
    _mount: TestMount,
    disk: SlowDisk,
}

impl Logged {
    fn new(filesystem: Filesystem) -> Logged {
        let disk = SlowDisk::builder().build().unwrap();
        let mount = TestMount::on(&disk, filesystem).unwrap();
        let path = mount.path().join("file");
        std::fs::write(&path, [0; LEN]).unwrap();
        let plain = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        plain.sync_all().unwrap();
        let start = extents(&plain).unwrap()[0].start;
        let file = Handle::new(plain).unwrap();
        Logged {
            file,
            start,
            _mount: mount,
            disk,
        }
    }

    /// Whether the file's data was written, and the device flushed after that.
    fn is_durable(&self) -> bool {
        let end = self.start + LEN as u64;
        let log = self.disk.log();
        let data = log.iter().rposition(|e| {
            e.op == slowdisk::Op::Write
                && e.offset < end
                && e.offset + u64::from(e.len) > self.start
        });
        let flushes = self.disk.flushes();
        data.is_some_and(|at| flushes.iter().any(|before| *before > at))
    }
}

fn each_filesystem(test: impl Fn(&Logged)) {
    require!(slowdisk::available());
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        require!(filesystem.available());
        test(&Logged::new(filesystem));
    }
}

fn write(file: &Handle, byte: u8) -> Write {
    Write::new(file, Box::new(vec![byte; LEN]), 0).all()
}

#[test]
fn an_fsync_covers_the_writes_whose_completions_are_there() {
    each_filesystem(|logged| {
        each(Options::new(), |engine| {
            for sync in [Fsync::new(&logged.file), Fsync::data(&logged.file)] {
                logged.disk.take_log();
                let done = one(engine, write(&logged.file, 1));
                assert_eq!(done.result.unwrap(), LEN);
                assert!(!logged.is_durable(), "it is in the page cache alone");
                assert_eq!(one(engine, sync).result.unwrap(), 0);
                assert!(
                    logged.is_durable(),
                    "{}: {:?}",
                    name(engine),
                    logged.disk.log()
                );
            }
        });
    });
}

#[test]
fn a_chain_orders_a_write_and_its_fsync() {
    each_filesystem(|logged| {
        each_ring(Options::new().backend(Backend::Uring), |engine| {
            let file = engine.file(&logged.file);
            logged.disk.take_log();
            let chain = Chain::new().then(write(&file, 2)).then(Fsync::data(&file));
            let tickets = engine.submit_chain(chain).unwrap();
            for done in finish(engine, tickets.len()) {
                assert!(done.result.is_ok(), "{done:?}");
            }
            assert!(
                logged.is_durable(),
                "{}: {:?}",
                name(engine),
                logged.disk.log()
            );
        });
    });
}

#[test]
fn a_dsync_write_is_durable_when_it_is_done() {
    each_filesystem(|logged| {
        each_kind(Options::new(), |engine| {
            let file = engine.file(&logged.file);
            logged.disk.take_log();
            let op = Op::from(write(&file, 3).flags(RwFlags::DSYNC));
            assert_eq!(one(engine, op).result.unwrap(), LEN);
            assert!(
                logged.is_durable(),
                "{}: {:?}",
                name(engine),
                logged.disk.log()
            );
        });
    });
}
