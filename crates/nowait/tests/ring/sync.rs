//! Durable data is on the device, and the device has flushed its cache afterwards.

use nowait::engine::Options;
use nowait::op::{Fsync, Write};
use nowait::{Handle, RwFlags};
use slowdisk::{Filesystem, SlowDisk, TestMount, extents, require};

use crate::common::completions::one;
use crate::common::drive::{each, name};
use crate::common::kinds::each_kind;

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

    /// Returns true if the data of the file was written and the device was flushed afterwards.
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

fn bytes(byte: u8) -> Vec<u8> {
    vec![byte; LEN]
}

#[test]
fn an_fsync_covers_the_writes_whose_completions_are_there() {
    each_filesystem(|logged| {
        each(Options::new(), |engine| {
            for sync in [Fsync::new(&logged.file), Fsync::data(&logged.file)] {
                logged.disk.take_log();
                let done = one(
                    engine,
                    Write::new(&logged.file, Box::new(bytes(1)), 0).all(),
                );
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
fn a_dsync_write_is_durable_when_it_is_done() {
    each_filesystem(|logged| {
        each_kind(Options::new(), |engine| {
            let file = engine.file(&logged.file);
            logged.disk.take_log();
            let write = Write::new(&file, engine.source(bytes(3)), 0).all();
            assert_eq!(
                one(engine, write.flags(RwFlags::DSYNC)).result.unwrap(),
                LEN
            );
            assert!(
                logged.is_durable(),
                "{}: {:?}",
                name(engine),
                logged.disk.log()
            );
        });
    });
}
