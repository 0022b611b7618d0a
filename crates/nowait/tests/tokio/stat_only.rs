//! A program that asks for metadata and opens no file.

use std::future::Future;
use std::path::Path;
use std::process::Command;

use ::tokio::runtime::Runtime;
use nowait::{Engine, StatxMask};
use slowdisk::Filesystem;

use crate::common::children::{in_child_by, role, this_program};
use crate::common::mounts::{mounted, mounts_have_unique_ids};

/// Returns true if a worker takes part in an operation.
fn is_by_worker<T, E: std::fmt::Debug>(
    runtime: &Runtime,
    operation: impl Future<Output = Result<T, E>>,
) -> bool {
    let workers = || Engine::process().unwrap().stats().workers;
    let before = workers();
    runtime.block_on(operation).unwrap();
    workers() > before
}

/// Each question is asked once in a worker, and then in the calling thread. A file is opened by a worker: its first open may
/// write.
fn ask(dir: &Path) {
    let (file, link) = (dir.join("file"), dir.join("link"));
    let runtime = ::tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    let statx = || nowait::tokio::statx(&file, StatxMask::BASIC_STATS);
    assert!(
        is_by_worker(&runtime, statx()),
        "no file of the mount is known"
    );
    // The kernel refuses to resolve a path without waiting while another test mounts or unmounts.
    let is_at_once = |ask: &dyn Fn() -> bool| (0..1000).any(|_| !ask());
    assert!(is_at_once(&|| is_by_worker(&runtime, statx())));
    if !dir.join("overlay").exists() {
        assert!(is_at_once(&|| is_by_worker(
            &runtime,
            nowait::tokio::metadata(&file)
        )));
        assert!(is_at_once(&|| is_by_worker(
            &runtime,
            nowait::tokio::symlink_metadata(&link)
        )));
        assert!(is_at_once(&|| is_by_worker(
            &runtime,
            nowait::tokio::try_exists(&file)
        )));
    }
    let read = || nowait::tokio::read(&file);
    assert!(is_by_worker(&runtime, read()), "the first open may write");
    assert!(is_at_once(&|| is_by_worker(&runtime, read())));
    assert!(is_at_once(&|| is_by_worker(
        &runtime,
        nowait::tokio::metadata(&file)
    )));
}

fn on(filesystem: Filesystem) {
    if let Some(dir) = role() {
        return ask(Path::new(&dir));
    }
    if !mounts_have_unique_ids() {
        return eprintln!("before Linux 6.8 a file must have been opened");
    }
    let mount = mounted!(filesystem);
    std::fs::write(mount.path().join("file"), "file").unwrap();
    std::os::unix::fs::symlink("file", mount.path().join("link")).unwrap();
    if filesystem == Filesystem::Overlay {
        std::fs::write(mount.path().join("overlay"), "").unwrap();
    }
    let mut command = Command::new(this_program());
    command.current_dir("/");
    in_child_by(command, mount.path().to_str().unwrap());
}

#[test]
fn metadata_is_ready_after_the_first_question_on_ext4() {
    on(Filesystem::Ext4);
}

#[test]
fn metadata_is_ready_after_the_first_question_on_xfs() {
    on(Filesystem::Xfs);
}

#[test]
fn metadata_is_ready_after_the_first_question_on_btrfs() {
    on(Filesystem::Btrfs);
}

#[test]
fn metadata_is_ready_after_the_first_question_on_tmpfs() {
    on(Filesystem::Tmpfs);
}

#[test]
fn metadata_is_ready_after_the_first_question_on_overlayfs() {
    on(Filesystem::Overlay);
}
