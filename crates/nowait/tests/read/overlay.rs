//! overlayfs, which most containers use, refuses `RWF_NOWAIT`. Cached data is served in the calling thread
//! all the same, and the bytes are right whatever happens to the file.

use std::ffi::CString;
use std::fs;
use std::future::Future;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use nowait::engine::{Backend, Options};
use nowait::op::Statx;
use nowait::residency::{Answer, Probe, Reason, Residency, residency};
use nowait::{BufResult, Engine, File, Handle, Mode, OpenOptions, ServedBy, StatxMask};
use rustix::mount::{MountFlags, UnmountFlags};
use slowdisk::{Filesystem, TestMount, TestMountBuilder};

use crate::common::backends::backends;
use crate::common::children::{in_child_by, role, this_program};
use crate::common::limit::Limit;
use crate::common::mounts::mounts_have_unique_ids;
use crate::common::samples::{Sample, bytes};

/// An overlay with one file in its lower layer, on an ext4.
pub fn overlay_with(name: &str, size: u64) -> (TestMount, Sample) {
    let base = TestMount::builder(Filesystem::Ext4);
    overlay_on(base, TestMount::builder(Filesystem::Overlay), name, size)
}

fn overlay_on(
    base: TestMountBuilder,
    overlay: TestMountBuilder,
    name: &str,
    size: u64,
) -> (TestMount, Sample) {
    let base = base.build().expect("a fresh ext4");
    let lower = base.path().join("lower");
    fs::create_dir(&lower).expect("mkdir");
    let mut sample = Sample::new(&lower, name, size);
    let overlay = overlay.overlay_on(base).expect("an overlay");
    sample.path = overlay.path().join(name);
    (overlay, sample)
}

const MIB: u64 = 1 << 20;

/// A file is opened in the calling thread only if overlayfs looks at no other file.
#[test]
fn files_open_at_once_if_only_their_layer_is_opened() {
    slowdisk::require!(Filesystem::Overlay.available());
    for (option, at_once) in [(None, true), (Some("metacopy=on"), false)] {
        let overlay = TestMount::builder(Filesystem::Overlay);
        let overlay = match option {
            Some(option) => overlay.option(option),
            None => overlay,
        };
        let (_mount, sample) =
            overlay_on(TestMount::builder(Filesystem::Ext4), overlay, "file", 5000);
        // The mount is known from then on.
        File::blocking_open(&sample.path).expect("open");
        let is_ready = || {
            let mut open = std::pin::pin!(File::open(&sample.path));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            open.as_mut().poll(&mut cx).is_ready()
        };
        // The kernel refuses to resolve a path without waiting while another test mounts or unmounts.
        let is_ready = (0..1000).any(|_| is_ready());
        let expected = at_once && mounts_have_unique_ids();
        assert_eq!(is_ready, expected, "{option:?}");
    }
}

/// Runs a test on a fresh overlay with a file of `size` bytes in its lower layer, in both modes and
/// on both backends.
fn each(size: u64, test: impl Fn(&TestMount, &mut Sample, &dyn Fn() -> File)) {
    let mounted = || overlay_with("file", size);
    each_on(mounted, |mount, sample, open| {
        let path = sample.path.clone();
        test(mount, sample, &|| open(&path));
    });
}

/// Runs a test on overlays that `mounted` makes, in both modes and on both backends. Files are opened by blocking calls in
/// one mode, and in the other by futures, which open files of a known mount in the calling thread.
fn each_on(
    mounted: impl Fn() -> (TestMount, Sample),
    test: impl Fn(&TestMount, &mut Sample, &dyn Fn(&Path) -> File),
) {
    slowdisk::require!(Filesystem::Overlay.available());
    for backend in backends() {
        for mode in [Mode::Eager, Mode::Strict] {
            let _limit = Limit::new(format!("{backend}, {mode:?}"));
            let (mount, mut sample) = mounted();
            let engine = Options::new().backend(backend).build().expect("an engine");
            let open = |path: &Path| {
                let mut options = OpenOptions::new();
                options.read(true).cache_mode(mode).engine(&engine);
                let blocking = options.blocking_open(path).expect("open");
                match (backend, mode) {
                    (Backend::Uring, Mode::Eager) | (Backend::Threads, Mode::Strict) => blocking,
                    _ => futures_executor::block_on(options.open(path)).expect("open"),
                }
            };
            test(&mount, &mut sample, &open);
        }
    }
}

/// Reads through the library and compares the bytes.
#[track_caller]
fn right(file: &File, sample: &Sample, offset: u64, len: usize) -> BufResult<Vec<u8>> {
    let done = pollster::block_on(file.read_at(Vec::with_capacity(len), offset));
    let n = *done.result.as_ref().expect("read");
    let expected = sample.expected(offset, len);
    assert_eq!(n, expected.len(), "the count of {len} from {offset}");
    assert!(done.buf == expected, "{len} from {offset}");
    let from = done.provenance;
    assert_eq!(from.cached + from.device + from.unknown, n, "{from:?}");
    done
}

/// A read that the caller must serve from the page cache.
#[track_caller]
fn hit(file: &File, sample: &Sample, offset: u64, len: usize) {
    let before = file.engine().stats();
    let done = right(file, sample, offset, len);
    let after = file.engine().stats();
    assert_eq!(done.provenance.served_by, ServedBy::Caller);
    assert_eq!(done.provenance.cached, *done.result.as_ref().expect("read"));
    assert_eq!(after.hits, before.hits + 1);
    assert_eq!(after.handoffs, before.handoffs);
}

/// The first read of the first file of a filesystem may find that NOWAIT is refused. The engine then makes
/// it.
fn learn(file: &File, sample: &Sample) {
    right(file, sample, 0, 1);
}

#[test]
fn what_is_cached_is_served_in_the_caller() {
    each(MIB, |_, sample, open| {
        let file = open();
        learn(&file, sample);
        sample.warm();
        for (offset, len) in [
            (0, 4096),
            (1, 10_000),
            (500_000, 200_000),
            (MIB - 5, 100),
            (0, 0),
        ] {
            hit(&file, sample, offset, len);
        }
        // For a second handle that is known.
        hit(&open(), sample, 4096, 4096);
    });
}

#[test]
fn what_is_not_cached_goes_to_the_engine() {
    each(MIB, |_, sample, open| {
        let file = open();
        learn(&file, sample);
        for (offset, len) in [(8192, 4096), (100_001, 50_000), (MIB - 5000, 10_000)] {
            sample.evict();
            let before = file.engine().stats();
            let done = right(&file, sample, offset, len);
            let after = file.engine().stats();
            assert_ne!(done.provenance.served_by, ServedBy::Caller);
            assert_eq!(done.provenance.cached, 0, "{:?}", done.provenance);
            assert_eq!(after.handoffs, before.handoffs + 1);
            assert_eq!(after.hits, before.hits);
        }
        // A half-cached range: the caller must not wait for the other half.
        sample.evict();
        sample.touch(0..32 * 4096);
        let done = right(&file, sample, 4096, 64 * 4096);
        assert_ne!(done.provenance.served_by, ServedBy::Caller);
        // The pages of the range count, not the first pages of the file.
        sample.evict();
        sample.touch(0..32 * 4096);
        let done = right(&file, sample, 100 * 4096, 4096);
        assert_ne!(done.provenance.served_by, ServedBy::Caller);
        sample.evict();
        sample.touch(100 * 4096..110 * 4096);
        hit(&file, sample, 101 * 4096 + 5, 20_000);
    });
}

#[test]
fn a_file_of_the_upper_layer() {
    each(1, |mount, _, open| {
        drop(open());
        let sample = Sample::new(mount.path(), "upper", MIB + 77);
        let engine = Engine::new().expect("an engine");
        let file = OpenOptions::new()
            .read(true)
            .engine(&engine)
            .blocking_open(&sample.path)
            .expect("open");
        learn(&file, &sample);
        sample.warm();
        hit(&file, &sample, 5000, 10_000);
        sample.evict();
        right(&file, &sample, 5000, 10_000);
    });
}

/// ```text
///   nowait: open, ask (maps the lower file) ........................ read, read
///   other:                                  write: copied up ─ evict
/// ```
#[test]
fn a_file_that_is_copied_up_behind_an_open_handle() {
    each(MIB, |_, sample, open| {
        let file = open();
        learn(&file, sample);
        sample.warm();
        hit(&file, sample, 0, 4096);
        let mut writer = fs::File::options()
            .write(true)
            .open(&sample.path)
            .expect("open");
        writer.write_all(b"of the upper layer").expect("write");
        sample.content[..18].copy_from_slice(b"of the upper layer");
        // The kernel decides what the old descriptor reads: pread(2) shows it.
        let seen = |file: &File| {
            let mut seen = vec![0; 10_000];
            file.blocking_read_exact_at(&mut seen, 0).expect("pread");
            seen
        };
        for cold in [false, true] {
            if cold {
                sample.evict();
            }
            let done = pollster::block_on(file.read_at(Vec::with_capacity(10_000), 0));
            assert_eq!(done.result.expect("read"), 10_000);
            assert!(done.buf == seen(&file), "an old handle");
            right(&open(), sample, 0, 10_000);
        }
        // A new handle serves the cached pages of the new file.
        let file = open();
        sample.warm();
        hit(&file, sample, 0, 4096);
    });
}

#[test]
fn a_file_that_grows_beyond_what_was_mapped() {
    // The mapping for residency questions has room for 16 MiB of growth.
    const GROWN: u64 = 20 * MIB;
    each(10_000, |_, sample, open| {
        // In the upper layer, so that the open descriptor sees it grow.
        let mut writer = fs::File::options()
            .append(true)
            .open(&sample.path)
            .expect("open");
        writer.write_all(&[7]).expect("append");
        sample.content.push(7);
        let file = open();
        learn(&file, sample);
        sample.warm();
        hit(&file, sample, 9_000, 5_000);
        let more = bytes(1, 0..GROWN - sample.size());
        writer.write_all(&more).expect("append");
        sample.content.extend(more);
        for (offset, len) in [
            (9_000, 5_000),
            (GROWN - 3 * MIB - 1, 100_000),
            (GROWN - 10, 100),
            (GROWN, 100),
        ] {
            hit(&file, sample, offset, len);
        }
        sample.evict();
        right(&file, sample, GROWN - MIB, 200_000);
        right(&file, sample, GROWN - 10, 100);
        right(&file, sample, 16 * MIB - 5_000, 200_000);
    });
}

#[test]
fn a_file_that_is_truncated_while_mapped() {
    each(MIB, |_, sample, open| {
        let writer = fs::File::options()
            .write(true)
            .open(&sample.path)
            .expect("open");
        writer.set_len(MIB + 1).expect("set_len");
        sample.content.push(0);
        let file = open();
        learn(&file, sample);
        sample.warm();
        hit(&file, sample, 500_000, 4096);
        // An access to the mapping there would raise SIGBUS.
        for size in [500_001, 4096, 1, 0] {
            writer.set_len(size).expect("set_len");
            sample.content.truncate(size as usize);
            for (offset, len) in [(500_000, 4096), (0, 10_000), (size, 10), (900_000, 1)] {
                right(&file, sample, offset, len);
            }
        }
        writer.set_len(MIB).expect("set_len");
        sample.content.resize(MIB as usize, 0);
        right(&file, sample, 0, MIB as usize);
        right(&file, sample, 900_000, 200_000);
    });
}

/// Checks that no page of the file that `file` reads is reported as cached, and that the caller does not read it.
#[track_caller]
fn none_cached(file: &File, probe: &Probe<'_>, sample: &Sample) {
    let none = |cached: Option<u64>| assert_eq!(cached.unwrap_or(0), 0);
    let pages = |answer: Answer<Residency>| answer.known().map(|sum| sum.cached);
    none(pages(
        file.residency().residency(0..u64::MAX).expect("residency"),
    ));
    none(pages(probe.residency(0..u64::MAX).expect("residency")));
    none(probe.resident_prefix(0, MIB).expect("a prefix").known());
    assert_ne!(
        probe.is_resident(0, 1).expect("an answer").known(),
        Some(true)
    );
    let map = probe.page_map(0..MIB).expect("a map").known();
    none(map.map(|map| map.cached()));
    let before = file.engine().stats();
    let done = right(file, sample, 0, 10_000);
    assert_ne!(done.provenance.served_by, ServedBy::Caller);
    assert_eq!(done.provenance.cached, 0);
    assert_eq!(file.engine().stats().hits, before.hits);
}

/// With `metacopy=on` a change of an attribute copies the attributes up, and a later write copies the bytes.
/// ```text
///   nowait: open, ask (lower) ......... ask (lower) ........... ask (upper)
///   other:                      chmod ............. write, evict
/// ```
#[test]
fn a_file_whose_attributes_are_copied_up_before_its_bytes() {
    let mounted = || {
        let base = TestMount::builder(Filesystem::Ext4);
        let overlay = TestMount::builder(Filesystem::Overlay).option("metacopy=on");
        overlay_on(base, overlay, "file", MIB)
    };
    each_on(mounted, |mount, sample, open| {
        let file = open(&sample.path);
        let probe = Probe::new(&file).expect("a probe");
        learn(&file, sample);
        sample.warm();
        hit(&file, sample, 0, 4096);
        fs::set_permissions(&sample.path, fs::Permissions::from_mode(0o640)).expect("chmod");
        hit(&file, sample, 0, 4096);
        assert_eq!(
            probe.is_resident(0, MIB).expect("an answer").known(),
            Some(true)
        );
        copy_up(sample);
        sample.evict();
        // All pages of the lower file are cached.
        fs::read(mount.lower().expect("a lower directory").join("file")).expect("read");
        none_cached(&file, &probe, sample);
        sample.warm();
        hit(&file, sample, 0, 4096);
    });
}

/// On a filesystem that stores whole seconds, a copy may have the change time of the file that was copied.
#[test]
fn a_file_that_is_copied_up_in_the_second_of_its_last_change() {
    let mounted = || {
        let base = TestMount::builder(Filesystem::Ext4)
            .mkfs_arg("-I")
            .mkfs_arg("128");
        overlay_on(base, TestMount::builder(Filesystem::Overlay), "file", MIB)
    };
    each_on(mounted, |mount, sample, open| {
        learn(&open(&sample.path), sample);
        let lower = mount.lower().expect("a lower directory");
        for number in 0.. {
            // A new name, which the overlay has not looked up before.
            let name = format!("file{number}");
            let mut sample = Sample::new(lower, &name, MIB);
            sample.path = mount.path().join(&name);
            let file = open(&sample.path);
            let probe = Probe::new(&file).expect("a probe");
            let changed = || fs::metadata(&sample.path).expect("stat").ctime();
            let before = changed();
            hit(&file, &sample, 0, 4096);
            copy_up(&sample);
            sample.evict();
            if changed() == before {
                fs::read(lower.join(&name)).expect("read");
                return none_cached(&file, &probe, &sample);
            }
            assert!(number < 50, "it takes longer than a second to copy a file");
        }
    });
}

/// Copies a file up by writing the byte that it has.
fn copy_up(sample: &Sample) {
    let writer = fs::File::options().write(true).open(&sample.path);
    let writer = writer.expect("open");
    writer.write_all_at(&sample.content[..1], 0).expect("write");
    writer.sync_all().expect("sync");
}

/// A descriptor may have been opened before a copy-up. Without /proc the file cannot be opened again to find out.
#[test]
fn residency_is_unknown_where_proc_is_not_mounted() {
    if role().is_some() {
        let path = std::env::var_os("NOWAIT_TEST_FILE").expect("a file");
        assert!(!fs::exists("/proc/self").expect("stat"));
        let old = fs::File::open(&path).expect("open");
        let mut page = [0; 4096];
        old.read_exact_at(&mut page, 0).expect("pread");
        let writer = fs::File::options().write(true).open(&path).expect("open");
        writer.write_all_at(&page[..1], 0).expect("write");
        let unknown = Reason::NotReopened(rustix::io::Errno::NOENT.raw_os_error());
        let answer = residency(&old, 0..u64::MAX).expect("an answer");
        assert_eq!(answer, Answer::Unknown(unknown));
        assert!(unknown.to_string().contains("mount /proc"), "{unknown}");
        let engine = Engine::new().expect("an engine");
        let file = File::from_fd(old, &engine).expect("a file");
        let read = pollster::block_on(file.read_exact_at(Vec::with_capacity(4096), 0));
        assert_eq!(read.result.expect("read"), 4096);
        assert!(read.buf == page);
        assert_ne!(read.provenance.served_by, ServedBy::Caller);
        // The copy is mapped through a descriptor that is open for reading and writing.
        let writer = fs::File::options().read(true).write(true).open(&path);
        let answer = residency(writer.expect("open"), 0..4096).expect("an answer");
        assert_eq!(answer.known().map(|known| known.cached), Some(1));
        return;
    }
    slowdisk::require!(Filesystem::Overlay.available());
    let (_mount, sample) = overlay_with("file", MIB);
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]);
    command.arg(this_program());
    command.env("NOWAIT_TEST_FILE", &sample.path);
    in_child_by(command, "without /proc");
}

/// Asks for metadata in the calling thread, and compares it with that of the standard library. `None`
/// if an engine must be asked.
#[track_caller]
fn metadata_of(path: &Path, open: Option<&Handle>) -> Option<u64> {
    let statx = match open {
        Some(open) => Statx::of(open, StatxMask::BASIC_STATS),
        None => {
            let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
            Statx::new(path, 0, StatxMask::BASIC_STATS)
        }
    };
    let own = statx.try_cached()?.expect("metadata");
    let std = fs::metadata(path).expect("metadata");
    assert_eq!(own.len(), std.len());
    assert_eq!((own.dev(), own.ino()), (std.dev(), std.ino()));
    assert_eq!((own.mode(), own.nlink()), (std.mode(), std.nlink()));
    assert_eq!(
        (own.mtime(), own.mtime_nsec()),
        (std.mtime(), std.mtime_nsec())
    );
    assert_eq!(
        (own.ctime(), own.ctime_nsec()),
        (std.ctime(), std.ctime_nsec())
    );
    assert_eq!((own.blocks(), own.uid()), (std.blocks(), std.uid()));
    Some(own.len())
}

/// Asserts that the size is known in the calling thread by path, from Linux 6.8 on. The kernel refuses
/// to resolve a path without waiting while another test mounts or unmounts.
#[track_caller]
fn is_known(path: &Path, size: u64) {
    let asked = || metadata_of(path, None);
    let found = std::iter::repeat_with(asked).take(1000).find_map(|it| it);
    assert_eq!(found, mounts_have_unique_ids().then_some(size));
}

#[test]
fn metadata_is_answered_in_the_caller_and_is_right_after_each_change() {
    slowdisk::require!(Filesystem::Overlay.available());
    let (mount, sample) = overlay_with("file", 8192);
    let path = sample.path.as_path();
    assert_eq!(metadata_of(path, None), None, "the mount is not known yet");
    let open = Handle::new(fs::File::open(path).expect("open")).expect("a handle");
    assert_eq!(metadata_of(path, Some(&open)), Some(8192));
    is_known(path, 8192);
    let synced = Statx::of(&open, StatxMask::SIZE);
    assert!(synced.try_cached().is_some());
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
    let synced = Statx::new(c"".into(), flags, StatxMask::SIZE).at(&open);
    assert!(synced.try_cached().is_none());
    // The file is copied up, first with its attributes alone.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
    is_known(path, 8192);
    let mut writer = fs::OpenOptions::new()
        .append(true)
        .open(path)
        .expect("open");
    writer.write_all(b"more").expect("write");
    is_known(path, 8196);
    assert_eq!(metadata_of(path, Some(&open)), Some(8196));
    fs::hard_link(path, mount.path().join("link")).expect("link");
    is_known(path, 8196);
    // Another file takes its place.
    fs::write(mount.path().join("new"), b"new").expect("write");
    fs::rename(mount.path().join("new"), path).expect("rename");
    is_known(path, 3);
    // Another filesystem covers it.
    let target = mount.path();
    let flags = MountFlags::empty();
    rustix::mount::mount("tmpfs", target, "tmpfs", flags, c"size=1m").expect("mount");
    fs::write(path, b"another").expect("write");
    let covered = metadata_of(path, None);
    rustix::mount::unmount(target, UnmountFlags::empty()).expect("umount");
    assert_eq!(covered, None);
    is_known(path, 3);
    // The same filesystem has a second mount, which is known after a file was opened there.
    let other = tempfile::tempdir().expect("a directory");
    rustix::mount::mount_bind(target, other.path()).expect("mount");
    let _unmounted = Unmounted(other.path());
    let bound = other.path().join("file");
    assert_eq!(metadata_of(&bound, None), None);
    drop(Handle::new(fs::File::open(&bound).expect("open")));
    is_known(&bound, 3);
    is_known(path, 3);
}

/// A mount that is unmounted at the end.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}
