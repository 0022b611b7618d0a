//! Files that need no lease, files that can have none, and the reasons.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use nowait::mapping::{Budget, Unavailable};
use nowait::{Engine, ErrorKind, File, Mapping, OpenOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use slowdisk::{Filesystem, LoopDevice, Mount, SlowDisk};

use crate::common::children::role;
use crate::common::files::{pattern, patterned, scratch};
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::nobody::in_child_as_nobody;
use crate::{budget, mapped};

const LEN: usize = 200_000;

fn file(path: &Path) -> File {
    File::blocking_open(path).unwrap()
}

/// Bytes can be borrowed.
fn works(mapping: &Mapping) {
    assert_eq!(mapping.why(), None);
    assert_eq!(
        *mapping.blocking_load(100..90_000).unwrap(),
        pattern(100, 89_900)
    );
    assert_eq!(*mapping.get(70_000..70_010).unwrap(), pattern(70_000, 10));
}

/// Bytes cannot be borrowed, and reads work as usual.
fn refuses(mapping: &Mapping, why: Unavailable) {
    assert_eq!(mapping.why(), Some(why));
    assert!(mapping.get(0..10).is_none());
    let error = mapping.blocking_load(0..10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unprotected, "{error}");
    mapping.prefetch(0..10);
    let mut buf = vec![0; 5000];
    let n = mapping.blocking_read_at(&mut buf[..], 70_000).unwrap();
    assert_eq!(buf[..n], pattern(70_000, 5000)[..n]);
    assert_eq!(mapping.stats(), Default::default());
}

/// Makes an image of a directory with a program of a Debian package, and mounts it.
fn image(filesystem: &str, package: &str, make: &dyn Fn(&Path, &Path) -> Command) {
    let (from, at) = (scratch(), scratch());
    patterned(from.path(), "file", LEN);
    let image = at.path().join("image");
    let Ok(output) = make(from.path(), &image).output() else {
        let missing = format!("{filesystem}: the package {package} is not installed");
        return slowdisk::skip_or_fail(missing);
    };
    assert!(output.status.success(), "{output:?}");
    let device = LoopDevice::attach(&image).unwrap();
    let on = at.path().join("mount");
    std::fs::create_dir(&on).unwrap();
    let mount = Mount::new(device.path(), &on, filesystem, "").unwrap();
    let mapping = mapped(&file(&on.join("file")), &budget(4));
    works(&mapping);
    drop((mapping, mount, device));
}

#[test]
fn files_of_read_only_filesystems_need_no_lease() {
    slowdisk::require!(slowdisk::available());
    let _limit = Limit::new("squashfs, erofs".into());
    image("squashfs", "squashfs-tools", &|from, to| {
        let mut command = Command::new("mksquashfs");
        command.args([from, to]);
        command
    });
    image("erofs", "erofs-utils", &|from, to| {
        let mut command = Command::new("mkfs.erofs");
        command.args([to, from]);
        command
    });
}

#[test]
fn sealed_memory_needs_no_lease() {
    for grows in [false, true] {
        let fd = memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
        let memory = std::fs::File::from(fd.try_clone().unwrap());
        (&memory).write_all(&pattern(0, LEN)).unwrap();
        let open =
            |fd: std::os::fd::OwnedFd| File::from_fd(fd, &Engine::process().unwrap()).unwrap();
        refuses(
            &Mapping::within(&open(fd.try_clone().unwrap()), &budget(4)).unwrap(),
            Unavailable::Nameless,
        );
        let mut seals = SealFlags::SHRINK | SealFlags::WRITE;
        seals.set(SealFlags::GROW, !grows);
        fcntl_add_seals(&fd, seals).unwrap();
        let mapping = Mapping::within(&open(fd), &budget(4)).unwrap();
        works(&mapping);
        drop(mapping.blocking_load(LEN as u64 - 10..LEN as u64).unwrap());
        let _ = memory.set_len(LEN as u64 + 7);
        let mut expected = [1; 30];
        let n = memory.read_at(&mut expected, LEN as u64 - 5).unwrap();
        assert_eq!(n, if grows { 12 } else { 5 });
        let mut buf = [2; 30];
        let read = mapping
            .blocking_read_at(&mut buf[..], LEN as u64 - 5)
            .unwrap();
        assert_eq!((read, &buf[..n]), (n, &expected[..n]));
    }
}

#[test]
fn leases_of_other_filesystems_are_not_trusted() {
    let _limit = Limit::new("overlay, FUSE".into());
    let overlay = mounted!(Filesystem::Overlay);
    let path = patterned(overlay.path(), "file", LEN);
    refuses(
        &Mapping::within(&file(&path), &budget(4)).unwrap(),
        Unavailable::Filesystem,
    );
    // SAFETY: the test does not change the file.
    #[allow(unsafe_code)]
    let trusted = unsafe { Mapping::trust(&file(&path), &budget(4)) }.unwrap();
    works(&trusted);
    let disk = SlowDisk::builder().size(1 << 20).build().unwrap();
    let mapping = Mapping::within(&file(disk.path()), &budget(4)).unwrap();
    assert_eq!(mapping.why(), Some(Unavailable::Filesystem));
}

#[test]
fn files_that_are_open_for_writing_or_empty() {
    let dir = scratch();
    let path = patterned(dir.path(), "file", LEN);
    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    refuses(
        &Mapping::within(&file(&path), &budget(4)).unwrap(),
        Unavailable::OpenForWriting,
    );
    drop(writer);
    let own = OpenOptions::new()
        .read(true)
        .write(true)
        .blocking_open(&path);
    let own = Mapping::within(&own.unwrap(), &budget(4)).unwrap();
    refuses(&own, Unavailable::OpenForWriting);
    drop(own);
    let again = mapped(&file(&path), &budget(4));
    works(&again);
    // Two mappings of one file.
    works(&mapped(&file(&path), &Budget::process().unwrap()));
    let nothing = mapped(again.file(), &budget(0));
    assert_eq!(nothing.why(), Some(Unavailable::NoBudget));
    assert_eq!(
        nothing.blocking_load(0..10).unwrap_err().errno(),
        Some(libc::ENOMEM)
    );
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = File::from_fd(reader, &Engine::process().unwrap()).unwrap();
    let pipe = Mapping::within(&pipe, &budget(4)).unwrap();
    assert_eq!(pipe.why(), Some(Unavailable::Unsupported));
    let empty = patterned(dir.path(), "empty", 0);
    let empty = Mapping::within(&file(&empty), &budget(4)).unwrap();
    assert!(empty.is_empty());
    refuses(&empty, Unavailable::Unsupported);
}

#[test]
fn files_of_other_users() {
    match role() {
        Some(path) => {
            let mapping = Mapping::within(&file(Path::new(&path)), &budget(4)).unwrap();
            refuses(&mapping, Unavailable::NotOwner);
        }
        None => {
            let mount = mounted!(Filesystem::Ext4);
            let path = patterned(mount.path(), "file", LEN);
            in_child_as_nobody(path.to_str().unwrap(), |_| {});
        }
    }
}
