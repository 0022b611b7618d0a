//! Bytes that were synced, or written with `RWF_DSYNC` or `RWF_SYNC`, on filesystems that end without a flush of their
//! log, as in a power cut.

use std::fs;
use std::path::Path;

use nowait::engine::{Engine, Options, Submit, Wait};
use nowait::op::{Fsync, Op, Write, Writev};
use nowait::{File, Handle, OpenOptions, RwFlags};
use pollster::block_on;
use slowdisk::{Filesystem, Log, TestMount};

use crate::common::files::pattern;
use crate::common::handles::handle_rw;
use crate::common::shared_engine::each_shared;

/// More than one try in the calling thread writes.
const LEN: usize = 300_000;

/// The file is empty and has its name before.
type Case = (&'static str, fn(&Engine, &Path));

fn open(engine: &Engine, path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).engine(engine);
    options.blocking_open(path).unwrap()
}

/// Waits for an operation.
fn finish(engine: &Engine, op: impl Into<Op>) -> usize {
    let mut done = Vec::new();
    let done = match engine.submit(op.into()) {
        Submit::Done(done) => done,
        Submit::Queued(_) => {
            engine.reap(&mut done, Wait::For(1)).unwrap();
            done.remove(0)
        }
        Submit::Full(_) => panic!("full"),
    };
    done.result.unwrap()
}

fn write(handle: &Handle) -> Write {
    Write::new(handle, Box::new(pattern(0, LEN)), 0).all()
}

const CASES: [Case; 11] = [
    ("write_all_at, sync_all", |engine, path| {
        let file = open(engine, path);
        block_on(file.write_all_at(pattern(0, LEN), 0))
            .result
            .unwrap();
        block_on(file.sync_all()).unwrap();
    }),
    ("write_all_at, sync_data", |engine, path| {
        let file = open(engine, path);
        block_on(file.write_all_at(pattern(0, LEN), 0))
            .result
            .unwrap();
        block_on(file.sync_data()).unwrap();
    }),
    ("write_all_at with DSYNC", |engine, path| {
        let write = open(engine, path);
        let write = write.write_all_at(pattern(0, LEN), 0);
        block_on(write.flags(RwFlags::DSYNC)).result.unwrap();
    }),
    ("write_all_at with SYNC", |engine, path| {
        let write = open(engine, path);
        let write = write.write_all_at(pattern(0, LEN), 0);
        block_on(write.flags(RwFlags::SYNC)).result.unwrap();
    }),
    ("write_at to a file of O_DSYNC", |engine, path| {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .engine(engine)
            .custom_flags(libc::O_DSYNC);
        let file = options.blocking_open(path).unwrap();
        block_on(file.write_all_at(pattern(0, LEN), 0))
            .result
            .unwrap();
    }),
    (
        "blocking_write_all_at, blocking_sync_all",
        |engine, path| {
            let file = open(engine, path);
            file.blocking_write_all_at(&pattern(0, LEN), 0).unwrap();
            file.blocking_sync_all().unwrap();
        },
    ),
    (
        "blocking_write_all_at, blocking_sync_data",
        |engine, path| {
            let file = open(engine, path);
            file.blocking_write_all_at(&pattern(0, LEN), 0).unwrap();
            file.blocking_sync_data().unwrap();
        },
    ),
    ("write::with_flags", |_, path| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        let n = nowait::write::with_flags(&file, &pattern(0, LEN), 0, RwFlags::DSYNC);
        assert_eq!(n.unwrap(), LEN);
    }),
    ("Write, Fsync", |engine, path| {
        let handle = handle_rw(path);
        assert_eq!(finish(engine, write(&handle)), LEN);
        finish(engine, Fsync::new(&handle));
    }),
    ("Write with DSYNC", |engine, path| {
        let handle = handle_rw(path);
        assert_eq!(finish(engine, write(&handle).flags(RwFlags::DSYNC)), LEN);
    }),
    ("Writev with DSYNC", |engine, path| {
        let (handle, bytes) = (handle_rw(path), pattern(0, LEN));
        let halves = bytes
            .chunks(LEN / 2)
            .map(|half| Box::new(half.to_vec()) as _);
        let write = Writev::new(&handle, halves.collect(), 0).flags(RwFlags::DSYNC);
        assert_eq!(finish(engine, write), LEN);
    }),
];

#[cfg(feature = "tokio")]
const TOKIO: [Case; 2] = [
    // `sync_all` waits for the write.
    ("nowait::tokio, write_all, sync_all", |_, path| {
        tokio_write(path, |file| block_on(file.sync_all()));
    }),
    ("nowait::tokio, write_all, sync_data", |_, path| {
        tokio_write(path, |file| block_on(file.sync_data()));
    }),
];
#[cfg(not(feature = "tokio"))]
const TOKIO: [Case; 0] = [];

#[cfg(feature = "tokio")]
fn tokio_write(path: &Path, sync: fn(&nowait::tokio::File) -> std::io::Result<()>) {
    use tokio::io::AsyncWriteExt;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut file = nowait::tokio::File::from_std(file);
    block_on(file.write_all(&pattern(0, LEN))).unwrap();
    sync(&file).unwrap();
}

/// The bytes of a file after a power cut.
fn after_a_power_cut(mount: &TestMount, write: impl FnOnce(&Path)) -> Vec<u8> {
    let path = mount.path().join("file");
    let file = fs::File::create(&path).unwrap();
    file.sync_all().unwrap();
    fs::File::open(mount.path()).unwrap().sync_all().unwrap();
    drop(file);
    write(&path);
    mount.shut_down(Log::Lost).unwrap();
    mount.remount().unwrap();
    fs::read(path).unwrap()
}

fn on(filesystem: Filesystem) {
    slowdisk::require!(filesystem.available());
    let mount = TestMount::new(filesystem).unwrap();
    each_shared(Options::new(), |engine| {
        for (name, case) in CASES.into_iter().chain(TOKIO) {
            let bytes = after_a_power_cut(&mount, |path| case(engine, path));
            assert!(
                bytes == pattern(0, LEN),
                "{filesystem}, {}: {name}",
                engine.backend()
            );
        }
    });
    // The test can detect a loss.
    let lost = after_a_power_cut(&mount, |path| fs::write(path, pattern(0, LEN)).unwrap());
    assert_ne!(lost, pattern(0, LEN));
}

#[test]
fn synced_bytes_are_there_after_a_power_cut_on_ext4() {
    on(Filesystem::Ext4);
}

#[test]
fn synced_bytes_are_there_after_a_power_cut_on_xfs() {
    on(Filesystem::Xfs);
}

/// The number of writes that the calling thread makes of 50 small ones, to a file that is opened with these flags.
fn made_in_the_calling_thread(engine: &Engine, mount: &TestMount, flags: i32) -> u64 {
    let path = mount.path().join("file");
    let plain = fs::File::create(&path).unwrap();
    let mut options = OpenOptions::new();
    options.write(true).engine(engine).custom_flags(flags);
    let file = options.blocking_open(&path).unwrap();
    let before = engine.stats().write_hits;
    for _ in 0..50 {
        // The time of the change is as it was at the next write.
        std::os::unix::fs::FileExt::write_all_at(&plain, &[1; 100], 0).unwrap();
        let write = block_on(file.write_all_at(vec![2; 100], 0));
        assert_eq!(write.result.unwrap(), 100);
    }
    engine.stats().write_hits - before
}

/// The kernel would sync there, and wait for the device.
#[test]
fn a_write_that_syncs_is_not_made_in_the_calling_thread() {
    slowdisk::require!(Filesystem::Xfs.available());
    let mount = TestMount::new(Filesystem::Xfs).unwrap();
    let syncing = TestMount::builder(Filesystem::Xfs).option("sync");
    let syncing = syncing.build().unwrap();
    each_shared(Options::new(), |engine| {
        let made = |mount, flags| made_in_the_calling_thread(engine, mount, flags);
        let what = engine.backend();
        assert_eq!(made(&mount, libc::O_DSYNC), 0, "{what}");
        assert_eq!(made(&mount, libc::O_SYNC), 0, "{what}");
        assert_eq!(made(&syncing, 0), 0, "{what}");
        assert_ne!(made(&mount, 0), 0, "{what}: the test can detect it");
    });
}
