//! Durable data is on the device, and the device has flushed its cache afterwards.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;

use nowait::engine::Options;
use nowait::op::{Fsync, Nop, Op, Write};
use nowait::{Handle, RwFlags};
use slowdisk::{Fault, Filesystem, SlowDisk, TestMount, extents, require};

use crate::common::completions::{finish, one, queued, said};
use crate::common::drive::{each, name};
use crate::common::kinds::each_kind;
use crate::common::wait::{LONG, wait_until};

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

#[test]
fn a_write_that_syncs_delays_no_other_operation() {
    require!(slowdisk::available());
    require!(Filesystem::Xfs.available());
    let disk = SlowDisk::builder().size(512 << 20).build().unwrap();
    let mount = TestMount::on(&disk, Filesystem::Xfs).unwrap();
    let open = |name: &str, flags| {
        let mut options = std::fs::File::options();
        let options = options.write(true).create(true).custom_flags(flags);
        options.open(mount.path().join(name)).unwrap()
    };
    let names: Vec<_> = (0..6).map(|number| format!("{number}")).collect();
    let mut data = Vec::new();
    for name in &names {
        open(name, 0).write_all(&[0; LEN]).unwrap();
        let file = std::fs::File::open(mount.path().join(name)).unwrap();
        file.sync_all().unwrap();
        data.extend(extents(&file).unwrap());
    }
    each(Options::new(), |engine| {
        let stall = |range: &std::ops::Range<u64>| disk.inject(Fault::stall(range.clone()));
        let stalls: Vec<_> = data.iter().map(stall).collect();
        let (ended, end) = std::sync::mpsc::channel();
        let released = &disk;
        std::thread::scope(|s| {
            let waited = s.spawn(move || {
                let end = end.recv_timeout(LONG);
                stalls.into_iter().for_each(|stall| released.release(stall));
                end
            });
            for (number, name) in names.iter().enumerate() {
                let (own, flag) = match number % 3 {
                    0 => (libc::O_DSYNC, RwFlags::empty()),
                    1 => (libc::O_SYNC, RwFlags::empty()),
                    _ => (0, RwFlags::DSYNC),
                };
                let file = Handle::new(open(name, own)).unwrap();
                // The time of the change is as it was at the next write, which then need not wait for
                // anything but the device.
                open(name, 0).write_all(&[1; LEN]).unwrap();
                queued(
                    engine,
                    Write::new(&file, Box::new(vec![2; LEN]), 0).flags(flag),
                );
            }
            queued(engine, Op::from(Nop).user_data(1));
            wait_until("the disk has a write", || disk.stalled() > 0);
            let nop = finish(engine, 1).remove(0);
            assert_eq!(nop.op.get_user_data(), 1, "{}", name(engine));
            let _ = ended.send(());
            assert!(waited.join().unwrap().is_ok(), "{}: waited", name(engine));
            for done in finish(engine, names.len()) {
                assert_eq!(said(&done), Ok(LEN), "{}", name(engine));
            }
        });
    });
}
