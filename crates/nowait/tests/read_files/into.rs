//! One file, read into memory of the caller.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nowait::read::{COPY_LIMIT, Plan};
use nowait::read_files::{blocking_read_into, try_read_into_cached};
use nowait::{ErrorKind, Mode};
use slowdisk::Filesystem;
use test_support::calls;

use crate::common::cache::evict;
use crate::common::children::role;
use crate::common::files::{patterned, scratch};
use crate::common::growing;
use crate::common::mounts::{mounted, mounts_have_unique_ids};
use crate::common::nobody::in_child_as_nobody;

/// The variable with the path of a file in a child.
const FILE: &str = "NOWAIT_TEST_FILE";
const LEN: usize = 30_000;
/// openat2(2) with O_PATH, two statx(2), openat(2), two close(2), preadv2(2).
const CALLS: [(&str, usize); 1] = [("a cached file", 7)];
const TIMES: usize = 3;

/// The file as memory of each of these lengths has it, by both functions and in both modes.
fn check(path: &Path, prepare: impl Fn()) {
    let content = std::fs::read(path).unwrap();
    let len = content.len();
    for room in [0, 1, len / 2, len - 1, len, len + 1, 2 * len] {
        let expected = &content[..len.min(room)];
        let mut bytes = vec![0x55; room];
        for mode in [Mode::Eager, Mode::Strict] {
            prepare();
            if let Some(n) = try_read_into_cached(path, &mut bytes[..], COPY_LIMIT, mode) {
                let n = n.unwrap();
                assert!(bytes[..n] == *expected, "{room} {mode:?}");
            }
            bytes.fill(0x55);
        }
        prepare();
        let n = blocking_read_into(path, &mut bytes[..]).unwrap();
        assert!(bytes[..n] == *expected, "{room}");
        assert!(bytes[n..].iter().all(|byte| *byte == 0x55), "{room}");
    }
}

#[test]
fn each_filesystem_has_the_bytes_of_the_file() {
    for filesystem in [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
        Filesystem::Overlay,
    ] {
        let mount = mounted!(filesystem);
        let path = patterned(mount.path(), "file", LEN);
        mount.sync().unwrap();
        check(&path, || ());
        check(&path, || evict(&path));
        // Its last pages are not cached.
        check(&path, || {
            evict(&path);
            blocking_read_into(&path, &mut [0; 100][..]).unwrap();
        });
    }
}

#[test]
fn a_cached_file_is_read_with_seven_calls() {
    if let Some(path) = std::env::var_os(FILE) {
        let path = Path::new(&path);
        let mut bytes = [0; LEN + 1];
        // It makes the filesystem known.
        assert_eq!(blocking_read_into(path, &mut bytes[..]).unwrap(), LEN);
        for _ in 0..TIMES {
            calls::mark();
            let read = try_read_into_cached(path, &mut bytes[..], COPY_LIMIT, Mode::Eager);
            calls::mark();
            // The kernel refuses to resolve a path without waiting while another test mounts or unmounts.
            let again = || try_read_into_cached(path, &mut bytes[..], COPY_LIMIT, Mode::Eager);
            let read = read.or_else(|| std::iter::repeat_with(again).take(1000).find_map(|it| it));
            assert_eq!(read.map(Result::unwrap), Some(LEN));
        }
        return;
    }
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", LEN);
    mount.sync().unwrap();
    calls::at_most_in_this_test(&CALLS, TIMES, (FILE, &path));
}

#[test]
fn nothing_is_read_in_the_calling_thread_that_is_not_cached_or_large() {
    let mount = mounted!(Filesystem::Ext4);
    let path = patterned(mount.path(), "file", 1 << 20);
    mount.sync().unwrap();
    let mut bytes = vec![0; 2 << 20];
    assert_eq!(blocking_read_into(&path, &mut bytes[..]).unwrap(), 1 << 20);
    let mut cached = |len: usize, mode| {
        // The kernel refuses to resolve a path without waiting while another test mounts or unmounts.
        let read = || try_read_into_cached(&path, &mut bytes[..len], COPY_LIMIT, mode);
        let read = std::iter::repeat_with(read).take(1000).find_map(|it| it);
        read.map(Result::unwrap)
    };
    assert_eq!(cached(2 << 20, Mode::Eager), None);
    assert_eq!(cached(10_000, Mode::Eager), Some(10_000));
    assert_eq!(cached(10_000, Mode::Strict), Some(10_000));
    let file = std::fs::File::open(&path).unwrap();
    evict(&path);
    let pages = || {
        nowait::residency::residency(&file, 0..u64::MAX)
            .unwrap()
            .known()
    };
    assert_eq!(cached(10_000, Mode::Strict), None);
    assert_eq!(pages().map(|pages| pages.cached), Some(0), "strict mode");
}

#[test]
fn a_file_that_becomes_longer_is_not_returned_in_part() {
    let mount = mounted!(Filesystem::Xfs);
    let mut bytes = [0; 100];
    growing::check(mount.path(), |path| {
        let n = try_read_into_cached(path, &mut bytes[..], COPY_LIMIT, Mode::Eager)?;
        Some(bytes[..n.unwrap()].to_vec())
    });
    growing::check(mount.path(), |path| {
        let file = nowait::read_files([path]).next()?;
        Some(file.unwrap().into_parts().1)
    });
}

/// A user who may not write a file is not told which of its pages are cached.
#[test]
fn a_strict_read_is_left_to_a_worker_if_the_kernel_does_not_tell_what_is_cached() {
    if let Some(path) = role() {
        let mut bytes = [0; 100];
        // It makes the filesystem known.
        blocking_read_into(Path::new(&path), &mut bytes[..]).unwrap();
        let mut read = |mode| {
            let read = || try_read_into_cached(Path::new(&path), &mut bytes[..], COPY_LIMIT, mode);
            // The kernel refuses to resolve a path without waiting while another test mounts or unmounts.
            let read = std::iter::repeat_with(read).take(1000).find_map(|it| it);
            read.map(Result::unwrap)
        };
        assert_eq!(read(Mode::Eager), Some(100));
        return assert_eq!(read(Mode::Strict), None);
    }
    let mount = mounted!(Filesystem::Ext4);
    std::fs::set_permissions(mount.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = patterned(mount.path(), "file", LEN);
    mount.sync().unwrap();
    in_child_as_nobody(path.to_str().unwrap(), |_| {});
}

/// The kernel returns that an empty file is at its end before it looks at the flag that overlayfs refuses.
#[test]
fn an_empty_file_does_not_hide_that_a_filesystem_refuses_reads_of_the_cache() {
    if !mounts_have_unique_ids() {
        return eprintln!("before Linux 6.8 a worker opens the files of overlayfs");
    }
    let mount = mounted!(Filesystem::Overlay);
    let (empty, file) = (
        patterned(mount.path(), "empty", 0),
        patterned(mount.path(), "file", LEN),
    );
    mount.sync().unwrap();
    let mut bytes = vec![0; LEN + 1];
    for path in [&empty, &file, &file] {
        assert!(blocking_read_into(path, &mut bytes[..]).is_ok());
        let _ = try_read_into_cached(path, &mut bytes[..], COPY_LIMIT, Mode::Eager);
    }
    // Nothing is asked for, either.
    let _ = try_read_into_cached(&file, &mut [0; 0][..], COPY_LIMIT, Mode::Eager);
    let opened = nowait::File::blocking_open(&file).unwrap();
    let plan = opened.plan(LEN);
    assert_ne!(plan, Plan::CacheFirst, "overlayfs refuses RWF_NOWAIT");
}

#[test]
fn other_files_are_errors() {
    let dir = scratch();
    let mut bytes = [0; 100];
    let mut read = |name: &str| {
        let path = dir.path().join(name);
        let cached = try_read_into_cached(&path, &mut bytes[..], COPY_LIMIT, Mode::Eager);
        let error = blocking_read_into(&path, &mut bytes[..]).unwrap_err();
        assert_eq!(error.path(), Some(&*path));
        if let Some(cached) = cached {
            assert_eq!(cached.unwrap_err().errno(), error.errno());
        }
        error
    };
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        dir.path().join("fifo"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    assert_eq!(read("fifo").kind(), ErrorKind::NotRegular);
    assert_eq!(read(".").errno(), Some(libc::EISDIR));
    assert_eq!(read("none").errno(), Some(libc::ENOENT));
    let none = Path::new("/proc/self/no such file");
    let error = blocking_read_into(none, &mut bytes[..]).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
}
