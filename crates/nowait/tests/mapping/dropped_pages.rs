//! Calls that change the pages of a file, and not its bytes. The kernel does not ask the holder of a lease.
#![allow(unsafe_code, reason = "ioctl(2), mincore(2), chown(2)")]

use std::fs::{File as StdFile, Permissions, set_permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use nowait::mapping::Unavailable;
use nowait::{File, Mapping};
use slowdisk::{Filesystem, TestMount};

use crate::common::children::{alone, role};
use crate::common::files::{pattern, patterned};
use crate::common::mounts::mounted;
use crate::common::nobody::{NOBODY, in_child_as_nobody};
use crate::{budget, mapped};

const LEN: usize = 256 << 10;
const PAGE: usize = 4096;

/// The number of pages in memory.
fn in_core(bytes: &[u8]) -> usize {
    let mut pages = vec![0_u8; bytes.len().div_ceil(PAGE)];
    let at = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the vector has a byte for each page.
    let done = unsafe { libc::mincore(at, bytes.len(), pages.as_mut_ptr()) };
    assert_eq!(done, 0);
    pages.iter().filter(|page| **page & 1 != 0).count()
}

/// `struct file_dedupe_range` with one destination (ioctl_fideduperange(2)).
#[repr(C)]
#[derive(Default)]
struct Dedupe {
    from: u64,
    len: u64,
    count: u16,
    reserved: [u16; 3],
    fd: i64,
    to: u64,
    deduplicated: u64,
    status: i32,
    reserved_too: u32,
}

/// Has two files share their blocks, by descriptors that are open for reading. Returns the status.
fn deduplicate(from: &Path, to: &Path) -> i32 {
    const FIDEDUPERANGE: libc::c_ulong = 0xc018_9436;
    let (from, to) = (StdFile::open(from).unwrap(), StdFile::open(to).unwrap());
    let mut range = Dedupe {
        len: LEN as u64,
        count: 1,
        fd: to.as_raw_fd().into(),
        ..Dedupe::default()
    };
    // SAFETY: the structure is as the manual page has it.
    let done = unsafe { libc::ioctl(from.as_raw_fd(), FIDEDUPERANGE as _, &raw mut range) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    assert!(range.status != 0 || range.deduplicated == LEN as u64);
    range.status
}

#[test]
fn borrowed_bytes_stay_when_their_file_is_deduplicated() {
    alone(|| {
        for filesystem in [Filesystem::Xfs, Filesystem::Btrfs] {
            let mount = mounted!(filesystem);
            let path = patterned(mount.path(), "file", LEN);
            let same = patterned(mount.path(), "same", LEN);
            mount.sync().unwrap();
            let mapping = mapped(&File::blocking_open(&path).unwrap(), &budget(4));
            let held = mapping.blocking_load(0..LEN as u64).unwrap();
            assert_eq!(in_core(&held), LEN / PAGE);
            assert_eq!(deduplicate(&same, &path), 0);
            let left = in_core(&held);
            eprintln!("{filesystem:?}: {left} of {} pages in memory", LEN / PAGE);
            assert!(left == LEN / PAGE || filesystem == Filesystem::Xfs);
            assert!(*held == pattern(0, LEN));
            // The lease holds as before.
            assert_eq!(mapping.why(), None);
            drop(StdFile::create(&path).unwrap());
            assert!(*held == pattern(0, LEN));
            assert_eq!(in_core(&held), LEN / PAGE);
        }
    });
}

#[test]
fn a_reader_of_the_file_cannot_deduplicate_it() {
    if let Some(dir) = role() {
        let dir = Path::new(&dir);
        let status = deduplicate(&dir.join("same"), &dir.join("file"));
        assert_eq!(status, -libc::EPERM);
        assert_eq!(deduplicate(&dir.join("same"), &dir.join("writable")), 0);
        return;
    }
    let mount = mounted!(Filesystem::Xfs);
    for name in ["file", "same", "writable"] {
        patterned(mount.path(), name, LEN);
    }
    set_permissions(mount.path().join("writable"), Permissions::from_mode(0o646)).unwrap();
    in_child_as_nobody(mount.path().to_str().unwrap(), |_| {});
}

fn why(path: &Path) -> Option<Unavailable> {
    mapped(&File::blocking_open(path).unwrap(), &budget(4)).why()
}

#[test]
fn a_file_of_xfs_that_other_users_may_write_is_refused() {
    for filesystem in [Filesystem::Xfs, Filesystem::Btrfs, Filesystem::Ext4] {
        let mount = mounted!(filesystem);
        let path = patterned(mount.path(), "file", LEN);
        let refused = (filesystem == Filesystem::Xfs).then_some(Unavailable::OthersMayWrite);
        for mode in [0o644, 0o600, 0o444] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(why(&path), None, "{filesystem:?}, {mode:o}");
        }
        for mode in [0o664, 0o646] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(why(&path), refused, "{filesystem:?}, {mode:o}");
        }
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(NOBODY), None).unwrap();
        assert_eq!(why(&path), refused, "{filesystem:?}, of another user");
    }
}

/// fs-verity (ioctl `FS_IOC_ENABLE_VERITY`). Kernels before 6.3 dropped the file's pages at its end, unless they have the
/// correction.
#[test]
fn borrowed_bytes_stay_when_their_file_gets_verity() {
    /// `struct fsverity_enable_arg`.
    #[repr(C)]
    struct Enable {
        version: u32,
        hash_algorithm: u32,
        block_size: u32,
        others: [u8; 116],
    }
    const FS_IOC_ENABLE_VERITY: libc::c_ulong = 0x4080_6685;
    let verity = TestMount::builder(Filesystem::Ext4).mkfs_arg("-Overity");
    slowdisk::require!(Filesystem::Ext4.available());
    let mount = verity.build().unwrap();
    let path = patterned(mount.path(), "file", LEN);
    let mapping: Mapping = mapped(&File::blocking_open(&path).unwrap(), &budget(4));
    let held = mapping.blocking_load(0..LEN as u64).unwrap();
    let file = StdFile::open(&path).unwrap();
    let enable = Enable {
        version: 1,
        hash_algorithm: 1,
        block_size: PAGE as u32,
        others: [0; 116],
    };
    // SAFETY: the structure has the size of the call's number.
    let done = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            FS_IOC_ENABLE_VERITY as _,
            &raw const enable,
        )
    };
    let error = std::io::Error::last_os_error();
    if done != 0 && error.raw_os_error() == Some(libc::EOPNOTSUPP) {
        // Kernels of Debian have it: scripts/test-kernels.sh.
        return println!("skipped: the kernel has no fs-verity");
    }
    assert_eq!(done, 0, "{error}");
    assert_eq!(in_core(&held), LEN / PAGE);
    assert!(*held == pattern(0, LEN));
}
