//! A block device whose filesystem is replaced by one of another type, which has the same device number.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};

use nowait::engine::Options;
use nowait::{Engine, OpenOptions};
use slowdisk::{LoopDevice, Mount};

use crate::common::wait::wait_until;

const SIZE: u64 = 64 << 20;

/// Opens a file whose path is cached. Returns true if the calling thread did so.
fn opens_here(engine: &Engine, path: &Path) -> bool {
    fs::metadata(path).unwrap();
    let mut options = OpenOptions::new();
    let mut open = pin!(options.read(true).engine(engine).open(path));
    match open.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(opened) => opened.is_ok(),
        Poll::Pending => {
            pollster::block_on(open).unwrap();
            false
        }
    }
}

/// True if statx(2) has `STATX_MNT_ID_UNIQUE` (Linux 6.8).
fn has_mount_ids(path: &Path) -> bool {
    let unique = rustix::fs::StatxFlags::from_bits_retain(0x4000);
    let flags = rustix::fs::AtFlags::empty();
    let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, unique).unwrap();
    stat.stx_mask & unique.bits() != 0
}

#[test]
fn the_type_of_a_filesystem_is_not_that_of_an_earlier_one_on_its_device() {
    slowdisk::require!(slowdisk::available());
    let directory = tempfile::tempdir().unwrap();
    let [image, other, content, at] =
        ["image", "other", "content", "at"].map(|name| directory.path().join(name));
    fs::create_dir(&content).unwrap();
    fs::create_dir(&at).unwrap();
    fs::write(content.join("file"), "bytes").unwrap();
    let make = |program: &str, arguments: &[&Path]| {
        let made = Command::new(program).args(arguments).output();
        made.is_ok_and(|output| output.status.success())
    };
    if !make("mkfs.erofs", &[&other, &content]) {
        return slowdisk::skip_or_fail("the package erofs-utils is not installed");
    }
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    assert!(make("mkfs.ext4", &[Path::new("-q"), &image]));
    let device = LoopDevice::attach(&image).unwrap();
    let engine = Options::new().build().unwrap();
    let file = at.join("file");

    let mount = Mount::new(device.path(), &at, "ext4", "").unwrap();
    fs::write(&file, "bytes").unwrap();
    let number = fs::metadata(&file).unwrap().dev();
    assert!(!opens_here(&engine, &file), "the first file");
    assert!(opens_here(&engine, &file), "another file");
    if !has_mount_ids(&file) {
        // The number of the device decides.
        return;
    }
    // A further mount of the same filesystem.
    let bound = directory.path().join("bound");
    fs::create_dir(&bound).unwrap();
    let further = Mount::new(device.path(), &bound, "ext4", "").unwrap();
    assert!(!opens_here(&engine, &bound.join("file")));
    assert!(opens_here(&engine, &bound.join("file")));
    assert!(opens_here(&engine, &file));
    drop((further, mount));

    // Another process may have a mount namespace with the mount for a moment.
    wait_until("the device is in use", || {
        let mut exclusive = File::options();
        exclusive.read(true).custom_flags(libc::O_EXCL);
        exclusive.open(device.path()).is_ok()
    });
    fs::copy(&other, device.path()).unwrap();
    let _mount = Mount::new(device.path(), &at, "erofs", "").unwrap();
    assert_eq!(fs::metadata(&file).unwrap().dev(), number);
    for _ in 0..2 {
        assert!(
            !opens_here(&engine, &file),
            "a file of another type of filesystem"
        );
    }
}
