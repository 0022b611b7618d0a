//! Random steps: a file is written, truncated, punched, replaced and grown between reads of its mapping, with
//! a budget of two windows. Each read is compared with pread(2), and borrowed bytes never change.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use nowait::mapping::SendResident;
use nowait::{Engine, ErrorKind, File, Mapping};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{FallocateFlags, fallocate};
use slowdisk::Filesystem;

use crate::common::backends::backends;
use crate::common::cache::evict;
use crate::common::files::pattern;
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::{budget, mapped};

#[derive(Clone, Debug)]
enum Step {
    Load(u64, u64),
    LoadLater(u64, u64),
    Get(u64, u64),
    Prefetch(u64, u64),
    Read(u64, usize),
    ReadLater(u64, usize),
    /// Returns one of the borrowed ranges.
    Return(usize),
    Evict,
    Change(Change),
    /// Maps the file again.
    Map,
}

/// A change of the file by another program, or by this one.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, usize),
    Truncate(u64),
    TruncateByAnother(u64),
    Punch(u64, u64),
    Replace(usize),
}

const LEN: u64 = 400_000;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || 0..LEN + 10_000;
    let change = prop_oneof![
        (at(), 1..9000usize).prop_map(|(at, len)| Change::Write(at, len)),
        at().prop_map(Change::Truncate),
        at().prop_map(Change::TruncateByAnother),
        (at(), 1..90_000u64).prop_map(|(at, len)| Change::Punch(at, len)),
        (1..LEN as usize).prop_map(Change::Replace),
    ];
    let step = prop_oneof![
        3 => (at(), 1..150_000u64).prop_map(|(at, len)| Step::Load(at, len)),
        2 => (at(), 1..90_000u64).prop_map(|(at, len)| Step::LoadLater(at, len)),
        4 => (at(), 1..90_000u64).prop_map(|(at, len)| Step::Get(at, len)),
        1 => (at(), 1..150_000u64).prop_map(|(at, len)| Step::Prefetch(at, len)),
        4 => (at(), 0..90_000usize).prop_map(|(at, len)| Step::Read(at, len)),
        2 => (at(), 1..90_000usize).prop_map(|(at, len)| Step::ReadLater(at, len)),
        2 => (0..4usize).prop_map(Step::Return),
        1 => Just(Step::Evict),
        2 => change.prop_map(Step::Change),
        1 => Just(Step::Map),
    ];
    proptest::collection::vec(step, 1..60)
}

fn change(path: &Path, change: &Change) {
    let open = || OpenOptions::new().write(true).open(path).unwrap();
    match *change {
        Change::Write(at, len) => open().write_all_at(&pattern(at ^ 77, len), at).unwrap(),
        Change::Truncate(len) => open().set_len(len).unwrap(),
        Change::TruncateByAnother(len) => {
            // truncate(1) opens with O_NONBLOCK, and fails with EAGAIN.
            let of = format!("of={}", path.display());
            let seek = format!("seek={len}");
            let mut dd = Command::new("dd");
            dd.args([&of, &seek, "bs=1", "count=0", "status=none", "if=/dev/null"]);
            assert!(dd.status().unwrap().success());
        }
        Change::Punch(at, len) => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(open(), flags, at, len) {
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => panic!("{error}"),
            }
        }
        Change::Replace(len) => {
            let new = path.with_extension("new");
            fs::write(&new, pattern(5, len)).unwrap();
            fs::rename(new, path).unwrap();
        }
    }
}

/// The bytes that pread(2) returns.
fn expected(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut n = 0;
    while n < len {
        match rustix::io::pread(file, &mut bytes[n..], at + n as u64).unwrap() {
            0 => break,
            more => n += more,
        }
    }
    bytes.truncate(n);
    bytes
}

/// The reasons for which loading may fail.
fn may_fail(mapping: &Mapping, end: u64, error: &nowait::Error) {
    match error.errno() {
        Some(libc::ENOMEM) => {}
        Some(libc::EINVAL) => assert!(end > mapping.len()),
        _ => assert!(mapping.why().is_some() && error.kind() == ErrorKind::Unprotected),
    }
}

fn run(path: &Path, engine: &Engine, leases: bool, steps: &[Step]) {
    fs::write(path, pattern(0, LEN as usize)).unwrap();
    evict(path);
    let mut steps = steps.iter();
    let budget = budget(2);
    while steps.len() > 0 {
        let mut options = nowait::OpenOptions::new();
        let file = options
            .read(true)
            .engine(engine)
            .blocking_open(path)
            .unwrap();
        let mapping = mapped(&file, &budget);
        assert_eq!(mapping.why().is_none(), leases && !mapping.is_empty());
        let mut held: Vec<(SendResident<'_>, Vec<u8>)> = Vec::new();
        for step in steps.by_ref() {
            match *step {
                Step::Load(at, len) => match mapping.blocking_load(at..at + len) {
                    Ok(bytes) => held.push((bytes, expected(&file, at, len as usize))),
                    Err(error) => may_fail(&mapping, at + len, &error),
                },
                Step::LoadLater(at, len) => match pollster::block_on(mapping.load(at..at + len)) {
                    Ok(bytes) => held.push((bytes, expected(&file, at, len as usize))),
                    Err(error) => may_fail(&mapping, at + len, &error),
                },
                Step::Get(at, len) => {
                    if let Some(bytes) = mapping.get(at..at + len) {
                        assert!(*bytes == expected(&file, at, len as usize), "{step:?}");
                    }
                }
                Step::Prefetch(at, len) => mapping.prefetch(at..at + len),
                Step::Read(at, len) => {
                    let mut buf = vec![1; len];
                    let n = mapping.blocking_read_at(&mut buf[..], at).unwrap();
                    assert!(buf[..n] == expected(&file, at, len), "{step:?}");
                }
                Step::ReadLater(at, len) => {
                    let read = pollster::block_on(mapping.read_at(Vec::with_capacity(len), at));
                    assert!(read.buf == expected(&file, at, len), "{step:?}");
                    assert_eq!(read.result.unwrap(), read.buf.len());
                }
                Step::Return(number) if number < held.len() => drop(held.remove(number)),
                Step::Return(_) => {}
                Step::Evict => evict(path),
                Step::Change(ref how) => change(path, how),
                Step::Map => break,
            }
            for (bytes, expected) in &held {
                assert!(
                    **bytes == **expected,
                    "borrowed bytes have changed: {step:?}"
                );
            }
        }
    }
}

fn on(filesystem: Filesystem) {
    let mount = mounted!(filesystem);
    let path = mount.path().join("file");
    for backend in backends() {
        let _limit = Limit::new(format!("{filesystem:?}, {backend}"));
        let engine = nowait::engine::Options::new()
            .backend(backend)
            .build()
            .unwrap();
        let config = Config {
            cases: 40,
            failure_persistence: None,
            ..Config::default()
        };
        let leases = filesystem != Filesystem::Overlay;
        let tested = TestRunner::new(config).run(&steps(), |steps| {
            run(&path, &engine, leases, &steps);
            Ok(())
        });
        tested.unwrap();
    }
}

#[test]
fn on_ext4() {
    on(Filesystem::Ext4);
}

#[test]
fn on_xfs() {
    on(Filesystem::Xfs);
}

#[test]
fn on_btrfs() {
    on(Filesystem::Btrfs);
}

#[test]
fn on_tmpfs() {
    on(Filesystem::Tmpfs);
}

#[test]
fn on_overlayfs() {
    on(Filesystem::Overlay);
}
