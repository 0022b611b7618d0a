//! Every name of a directory is returned exactly once, with the metadata that statx(2) returns, on every
//! filesystem and with all options.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nowait::Scan;
use nowait::scan::{Options, Order};
use slowdisk::{Filesystem, TestMount};

use crate::common::by_workers::{by_workers, found};
use crate::common::files::{patterned, scratch};
use crate::common::limit::Limit;
use crate::common::mounts::{ON_DISK, mounted};
use crate::directories::{
    assert_same, engines, fill, listed, scanned, scanned_by_workers, with_metadata,
};

/// Sizes around the number of names that one call returns, and sizes that are listed in parts.
const SIZES: [usize; 7] = [0, 1, 2, 300, 1_000, 3_000, 20_000];

/// The same scan with different options.
fn ways(options: &Options, dir: &Path) -> Vec<(&'static str, BTreeMap<std::ffi::OsString, u64>)> {
    let as_entries = scanned(options.blocking_open(dir).unwrap());
    let of_workers = scanned_by_workers(options.blocking_open(dir).unwrap());

    let mut as_batches = BTreeMap::new();
    let mut scan = options.blocking_open(dir).unwrap();
    while let Some(batch) = scan.blocking_batch() {
        for entry in batch.unwrap().iter() {
            let before = as_batches.insert(entry.file_name().to_owned(), entry.ino());
            assert_eq!(before, None, "{} came twice", entry.file_name().display());
        }
    }

    let as_futures = pollster::block_on(async {
        let mut scan = options.open(dir).await.unwrap();
        let mut seen = BTreeMap::new();
        while let Some(batch) = scan.batch().await {
            for entry in batch.unwrap().iter() {
                let before = seen.insert(entry.file_name().to_owned(), entry.ino());
                assert_eq!(before, None, "{} came twice", entry.file_name().display());
            }
        }
        seen
    });
    vec![
        ("entries", as_entries),
        ("entries, by workers", of_workers),
        ("batches", as_batches),
        ("futures", as_futures),
    ]
}

fn every_name_once(filesystem: Filesystem) {
    slowdisk::require!(filesystem.available());
    let mount = TestMount::builder(filesystem)
        .size(1 << 30)
        .build()
        .unwrap();
    let _limit = Limit::new(format!("{filesystem}"));
    for n in SIZES {
        let dir = mount.path().join(format!("d{n}"));
        fill(&dir, "a file of number ", n);
        let expected = listed(&dir);
        assert_eq!(expected.len(), n);
        for engine in engines() {
            let names = Options::new().engine(&engine);
            let all = with_metadata().engine(&engine);
            for (options, what) in [
                (names.clone(), "names"),
                (names.clone().order(Order::Name), "names by name"),
                (all.clone(), "all"),
                (all.clone().order(Order::Inode), "all, by inode"),
                (all.clone().order(Order::Name), "all, by name"),
                (
                    all.clone().max_buffered(100, 1 << 20),
                    "all, through a small window",
                ),
                (all.clone().workers(1), "all, by one worker"),
            ] {
                for (way, seen) in ways(&options, &dir) {
                    let what = format!(
                        "{filesystem}, {n} files, {what}, {way}, {}",
                        engine.backend()
                    );
                    assert_same(&seen, &expected, &what);
                }
            }
        }
    }
}

#[test]
fn on_ext4() {
    every_name_once(Filesystem::Ext4);
}

#[test]
fn on_xfs() {
    every_name_once(Filesystem::Xfs);
}

#[test]
fn on_btrfs() {
    every_name_once(Filesystem::Btrfs);
}

#[test]
fn on_tmpfs() {
    every_name_once(Filesystem::Tmpfs);
}

#[test]
fn on_overlayfs() {
    every_name_once(Filesystem::Overlay);
}

#[test]
fn a_large_directory_is_listed_in_parts_where_positions_can_be_cut() {
    for filesystem in Filesystem::ALL {
        slowdisk::require!(filesystem.available());
        let mount = TestMount::builder(filesystem)
            .size(1 << 30)
            .build()
            .unwrap();
        let dir = mount.path().join("d");
        fill(&dir, "f", 20_000);
        let mut scan = Options::new().blocking_open(&dir).unwrap();
        by_workers(&mut scan).for_each(|entry| drop(entry.unwrap()));
        let can_be_cut = ON_DISK.contains(&filesystem);
        assert_eq!(
            scan.stats().parts > 1,
            can_be_cut,
            "{filesystem}: {:?}",
            scan.stats()
        );
        assert_eq!(scan.stats().listed, 20_000);
    }
}

#[test]
fn the_first_entries_of_a_large_directory_are_those_of_its_order() {
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        fill(&dir, "f", 20_000);
        let order = fs::read_dir(&dir).unwrap();
        let mut first: Vec<_> = order
            .take(5_000)
            .map(|it| it.unwrap().file_name())
            .collect();
        first.sort();
        let options = Options::new().max_entries(5_000);
        let mut scan = options.blocking_open(&dir).unwrap();
        let mut listed: Vec<_> = by_workers(&mut scan)
            .map(|entry| entry.unwrap().file_name().to_owned())
            .collect();
        listed.sort();
        assert!(listed == first, "{filesystem}: {:?}", scan.stats());
    }
}

/// btrfs never reuses index numbers: here the first name's number is far from the others, and the estimated
/// end of the directory is far from the real one.
#[test]
fn a_directory_with_large_gaps_in_its_positions() {
    for filesystem in ON_DISK {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        fill(&dir, "gone", 20_000);
        fill(&dir, "first", 3_000);
        for i in 0..20_000 {
            fs::remove_file(dir.join(format!("gone{i}"))).unwrap();
        }
        fill(
            &dir,
            "last with a much longer name, so that its size misleads ",
            5_000,
        );
        let expected = listed(&dir);
        for workers in [1, 2, 16] {
            let options = with_metadata().workers(workers);
            let seen = scanned_by_workers(options.blocking_open(&dir).unwrap());
            assert_same(
                &seen,
                &expected,
                &format!("{filesystem}, {workers} workers"),
            );
        }
    }
}

/// Names with equal hashes have equal positions on ext4. The legacy hash has 31 bits and no seed, so some of
/// many names collide.
#[test]
fn names_of_equal_hash_on_ext4() {
    slowdisk::require!(Filesystem::Ext4.available());
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    fs::File::create(&image).unwrap().set_len(4 << 30).unwrap();
    let device = slowdisk::LoopDevice::attach(&image).unwrap();
    let run = |program: &str, args: &[&str]| {
        let done = std::process::Command::new(program)
            .args(args)
            .arg(device.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    run("mkfs.ext4", &["-q", "-F"]);
    run("tune2fs", &["-E", "hash_alg=legacy"]);
    let at = scratch.path().join("mnt");
    fs::create_dir(&at).unwrap();
    let mount = slowdisk::Mount::new(device.path(), at, "ext4", "").unwrap();
    let dir = mount.path().join("d");
    fill(&dir, "", 150_000);

    let (mut met, mut before) = (0, None);
    let mut room = Vec::with_capacity(1 << 16);
    let mut dirents =
        rustix::fs::RawDir::new(fs::File::open(&dir).unwrap(), room.spare_capacity_mut());
    while let Some(dirent) = dirents.next() {
        let next = dirent.unwrap().next_entry_cookie();
        met += usize::from(before.replace(next) == Some(next));
    }
    assert!(met > 0, "no two names have the same hash here");

    let expected = listed(&dir);
    for workers in [1, 2, 16] {
        let options = Options::new().workers(workers);
        let seen = scanned_by_workers(options.blocking_open(&dir).unwrap());
        assert_same(&seen, &expected, &format!("{workers} workers"));
    }
}

#[test]
fn metadata_is_what_lstat_says() {
    for filesystem in Filesystem::ALL {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        fill(&dir, "empty", 50);
        fs::write(dir.join("three bytes"), "abc").unwrap();
        fs::create_dir(dir.join("directory")).unwrap();
        fs::hard_link(dir.join("three bytes"), dir.join("again")).unwrap();
        std::os::unix::fs::symlink("three bytes", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join("broken")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        for caller in [true, false] {
            let mut n = 0;
            for entry in found(&mut with_metadata().blocking_open(&dir).unwrap(), caller) {
                let entry = entry.unwrap();
                let stat = entry.metadata().unwrap().unwrap();
                let expected = fs::symlink_metadata(dir.join(entry.file_name())).unwrap();
                let times = (expected.mtime(), expected.mtime_nsec());
                assert_eq!(stat.len(), expected.size());
                assert_eq!(stat.mode(), expected.mode());
                assert_eq!(stat.nlink(), expected.nlink());
                assert_eq!((stat.uid(), stat.gid()), (expected.uid(), expected.gid()));
                assert_eq!((stat.mtime(), stat.mtime_nsec()), times);
                assert_eq!(entry.ino(), expected.ino());
                assert_eq!(stat.blocks(), expected.blocks());
                let kind = rustix::fs::FileType::from_raw_mode(expected.mode());
                assert_eq!(entry.file_type(), kind.into());
                n += 1;
            }
            assert_eq!(n, 56, "{filesystem}");
        }
        let follow = with_metadata().follow(true).blocking_open(&dir).unwrap();
        for entry in follow.map(Result::unwrap) {
            let stat = entry.metadata().unwrap();
            match fs::metadata(dir.join(entry.file_name())) {
                Ok(expected) => assert_eq!(stat.unwrap().ino(), expected.ino()),
                Err(e) => assert_eq!(stat.unwrap_err().errno(), e.raw_os_error()),
            }
        }
    }
}

#[test]
fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    for filesystem in Filesystem::ALL {
        let mount = mounted!(filesystem);
        let dir = mount.path().join("d");
        fs::create_dir(&dir).unwrap();
        let mut names: Vec<Vec<u8>> = vec![
            vec![0xff; 255],
            b"\n".to_vec(),
            b"...".to_vec(),
            b" ".to_vec(),
        ];
        names.extend((1..=255u8).filter(|b| *b != b'/').map(|b| {
            let mut name = vec![b, b'x'];
            name.extend((1..=253).map(|i: u32| (i.wrapping_mul(u32::from(b)) % 255) as u8 + 1));
            name.iter_mut().for_each(|c| {
                if *c == b'/' {
                    *c = 0xfe
                }
            });
            name
        }));
        for name in &names {
            let made = fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), "");
            assert!(made.is_ok(), "{filesystem}: {name:?}");
        }
        for options in [
            with_metadata(),
            with_metadata().order(Order::Name).max_buffered(1, 1),
        ] {
            let seen = scanned(options.blocking_open(&dir).unwrap());
            assert_same(&seen, &listed(&dir), filesystem.name());
            assert_eq!(seen.len(), names.len());
        }
    }
}

#[test]
fn a_scan_of_an_open_directory_begins_at_its_beginning() {
    let dir = scratch();
    fill(dir.path(), "f", 100);
    let fd = fs::File::open(dir.path()).unwrap();
    let mut room = Vec::with_capacity(1024);
    let mut part = rustix::fs::RawDir::new(&fd, room.spare_capacity_mut());
    part.next().unwrap().unwrap();
    assert_eq!(scanned(Options::new().from_fd(fd).unwrap()).len(), 100);
}

#[test]
fn what_is_no_directory_is_an_error() {
    let dir = scratch();
    let file = patterned(dir.path(), "file", 10);
    let errno = |result: nowait::Result<Scan>| result.map(drop).unwrap_err().errno();
    assert_eq!(errno(Scan::blocking_open(&file)), Some(libc::ENOTDIR));
    assert_eq!(
        errno(Scan::blocking_open(dir.path().join("none"))),
        Some(libc::ENOENT)
    );
    assert_eq!(
        errno(pollster::block_on(Scan::open(&file))),
        Some(libc::ENOTDIR)
    );
    assert_eq!(
        errno(Options::new().from_fd(fs::File::open(&file).unwrap())),
        Some(libc::ENOTDIR)
    );
    let error = Scan::blocking_open(&file).map(drop).unwrap_err();
    assert_eq!(error.path(), Some(file.as_path()));
}
