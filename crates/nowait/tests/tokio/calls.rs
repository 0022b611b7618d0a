//! The system calls of operations on paths whose names, metadata and data are cached, counted by strace(1). The calling
//! thread makes all of them.

use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nowait::StatxMask;
use slowdisk::{Filesystem, TestMount};
use test_support::calls;

use crate::common::children::{in_child_by, role, this_program};
use crate::common::mounts::mounted;

/// The number of times that each operation is made.
const TIMES: usize = 100;

const LEN: usize = 371;

/// An operation, and the most system calls that it makes: on overlayfs, and elsewhere.
struct Row {
    name: &'static str,
    most: usize,
    most_on_overlay: usize,
}

const fn row(name: &'static str, most: usize) -> Row {
    Row {
        name,
        most,
        most_on_overlay: most,
    }
}

const ROWS: [Row; 11] = [
    // O_PATH, statx, open, statx, close, read, close. overlayfs refuses RWF_NOWAIT: a mapping tells if the data is cached.
    Row {
        name: "read",
        most: 7,
        most_on_overlay: 14,
    },
    Row {
        name: "read_to_string",
        most: 7,
        most_on_overlay: 14,
    },
    // O_PATH, statx, open, statx, fcntl, close, read, close. fcntl: the program may get the descriptor.
    Row {
        name: "File::open, read_at",
        most: 8,
        most_on_overlay: 15,
    },
    Row {
        name: "tokio::File::open, read_at",
        most: 7,
        most_on_overlay: 14,
    },
    // O_PATH, statx, open, statx, close, read, statx, close. The last statx: no bytes were added to the file while it was read.
    // On overlayfs there are two: the first of them tells if the layer of the file is local.
    Row {
        name: "File::open, read_to_end",
        most: 8,
        most_on_overlay: 17,
    },
    Row {
        name: "File::open, read_to_string",
        most: 8,
        most_on_overlay: 17,
    },
    // O_PATH, statx, statx for the type of the standard library, close.
    row("metadata", 4),
    row("symlink_metadata", 4),
    // O_PATH, statx, statx, close. The first statx asks for the type alone: SMB waits if it is asked for more.
    row("statx", 4),
    row("try_exists", 3),
    // O_PATH, statx, statx, readlinkat, close.
    row("read_link", 5),
];

async fn run(name: &str, file: &Path, link: &Path) -> io::Result<()> {
    match name {
        "read" => assert_eq!(nowait::tokio::read(file).await?.len(), LEN),
        "read_to_string" => assert_eq!(nowait::tokio::read_to_string(file).await?.len(), LEN),
        "File::open, read_at" => {
            let file = nowait::File::open(file).await?;
            let (n, _) = file.read_at(vec![0; LEN], 0).await.into_result()?;
            assert_eq!(n, LEN);
        }
        "tokio::File::open, read_at" => {
            let file = nowait::tokio::File::open(file).await?;
            let (n, _) = file.read_at(vec![0; LEN], 0).await.into_result()?;
            assert_eq!(n, LEN);
        }
        "File::open, read_to_end" => {
            let mut bytes = Vec::new();
            let mut file = nowait::tokio::File::open(file).await?;
            assert_eq!(file.read_to_end(&mut bytes).await?, LEN);
        }
        "File::open, read_to_string" => {
            let mut text = String::new();
            let mut file = nowait::tokio::File::open(file).await?;
            assert_eq!(file.read_to_string(&mut text).await?, LEN);
        }
        "metadata" => assert_eq!(nowait::tokio::metadata(file).await?.len(), LEN as u64),
        "symlink_metadata" => {
            let metadata = nowait::tokio::symlink_metadata(link).await?;
            assert!(metadata.is_symlink());
        }
        "statx" => {
            let metadata = nowait::tokio::statx(file, StatxMask::BASIC_STATS).await?;
            assert_eq!(metadata.len(), LEN as u64);
        }
        "try_exists" => {
            assert!(nowait::tokio::try_exists(file).await?);
        }
        "read_link" => assert_eq!(nowait::tokio::read_link(link).await?, Path::new("file")),
        _ => unreachable!("{name}"),
    }
    Ok(())
}

/// Makes the operations, with a mark in the log before each of them, and after it.
fn make_all(dir: &Path, filesystem: Filesystem) {
    let (file, link) = (dir.join("file"), dir.join("link"));
    let runtime = ::tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    for row in &ROWS {
        // The first one makes the filesystem known, and may find that it refuses RWF_NOWAIT.
        for _ in 0..2 {
            runtime.block_on(run(row.name, &file, &link)).unwrap();
        }
        for _ in 0..TIMES {
            calls::mark();
            let operation = run(row.name, &file, &link);
            let mut operation = std::pin::pin!(operation);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _inside = runtime.enter();
            let done = operation.as_mut().poll(&mut context);
            // btrfs might have to read the target of a link.
            let others = [Filesystem::Btrfs, Filesystem::Overlay];
            let by_worker = row.name == "read_link" && others.contains(&filesystem);
            assert!(
                done.is_ready() || by_worker,
                "{}: not at the first poll",
                row.name
            );
            calls::mark();
        }
    }
}

fn check(dir: &Path, filesystem: Filesystem) {
    if let Some(dir) = role() {
        return make_all(Path::new(&dir), filesystem);
    }
    fs::write(dir.join("file"), vec![b'x'; LEN]).unwrap();
    // btrfs refuses RWF_NOWAIT for data that is not written yet. A mapping of a file of overlayfs that was changed just
    // now is used once.
    fs::File::open(dir.join("file"))
        .unwrap()
        .sync_all()
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
    let most = ROWS.map(|row| match filesystem {
        Filesystem::Overlay => (row.name, row.most_on_overlay),
        _ => (row.name, row.most),
    });
    calls::at_most(&most, TIMES, |mut command| {
        command.arg(this_program());
        in_child_by(command, dir.to_str().unwrap());
    });
}

fn on(filesystem: Filesystem) {
    if role().is_some() {
        return check(Path::new(""), filesystem);
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return slowdisk::skip_or_fail("strace is missing (Debian package strace)");
    }
    if filesystem == Filesystem::Overlay {
        slowdisk::require!(Filesystem::Overlay.available());
        // Smaller inodes have times of whole seconds. A page of smaller blocks is not resident until all of it is read.
        let base = TestMount::builder(Filesystem::Ext4);
        let base = base.mkfs_arg("-I256").mkfs_arg("-b4096");
        let base = base.build().expect("a fresh ext4");
        let mount = TestMount::overlay(base).expect("an overlay");
        return check(mount.path(), filesystem);
    }
    let mount = mounted!(filesystem);
    check(mount.path(), filesystem);
}

#[test]
fn ext4() {
    on(Filesystem::Ext4);
}

#[test]
fn xfs() {
    on(Filesystem::Xfs);
}

/// Without a device number of a block device: known by the ID of the mount (Linux 6.8).
#[test]
fn btrfs() {
    on(Filesystem::Btrfs);
}

#[test]
fn tmpfs() {
    on(Filesystem::Tmpfs);
}

#[test]
fn overlayfs() {
    on(Filesystem::Overlay);
}
