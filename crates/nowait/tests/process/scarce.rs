//! Few descriptors, no threads, little memory. Reads of many files, walks and scans wait for what their own
//! operations will give back. Anything else is an error, and the program goes on.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait::buffer::BufferPool;
use nowait::engine::{Engine, Options};
use nowait::mapping::{BudgetOptions, Mapping};
use nowait::{StatxMask, read_files, scan, walk};
use rustix::process::Resource;

use crate::common::backends::backends;
use crate::common::by_workers::{by_workers, found};
use crate::common::cache::evict;
use crate::common::children::{in_child, role};
use crate::common::files::{pattern, scratch};
use crate::common::limit::Limit;
use crate::limits::{become_nobody, in_children, is_root, limit};

const DIRECTORIES: usize = 12;
const FILES: usize = 30;
/// The entries of a tree.
const ENTRIES: usize = DIRECTORIES * (2 + FILES);

/// Makes a tree of files that are not cached.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for i in 0..DIRECTORIES {
        let dir = root.join(format!("d{i}/e"));
        std::fs::create_dir_all(&dir).unwrap();
        for j in 0..FILES {
            let path = dir.join(j.to_string());
            std::fs::write(&path, pattern(j as u64, 1000)).unwrap();
            paths.push(path);
        }
    }
    paths.iter().for_each(|path| evict(path));
    paths
}

fn walked(options: &walk::Options, root: &Path, caller: bool) -> usize {
    let mut walk = options.blocking_open(root).unwrap();
    found(&mut walk, caller).map(Result::unwrap).count()
}

/// The files: read by workers alone, or first by the calling thread.
fn read<'a>(
    options: &read_files::Options,
    paths: impl IntoIterator<Item = &'a PathBuf>,
    caller: bool,
) -> impl Iterator<Item = nowait::Result<nowait::FileContents>> {
    let mut files = options.read(paths);
    let mut first = None;
    if !caller {
        first = pollster::block_on(files.next_file());
    }
    first.into_iter().chain(files)
}

/// Every call that opens files in parallel opens all of them.
fn everything_is_there(engine: &Engine, root: &Path, paths: &[PathBuf]) {
    for (caller, in_order) in [(true, false), (false, false), (false, true)] {
        let files = read_files::Options::new().engine(engine).in_order(in_order);
        let mut seen = 0;
        for file in read(&files, paths, caller) {
            let file = file.unwrap();
            let name = file.path().file_name().unwrap().to_str().unwrap();
            assert!(file.bytes() == pattern(name.parse().unwrap(), 1000));
            seen += 1;
        }
        assert_eq!(seen, paths.len());
        paths.iter().for_each(|path| evict(path));
        let walk = walk::Options::new()
            .engine(engine)
            .metadata(StatxMask::BASIC_STATS);
        assert_eq!(walked(&walk, root, caller), ENTRIES);
    }
    for i in 0..DIRECTORIES {
        let dir = root.join(format!("d{i}/e"));
        let scan = scan::Options::new()
            .engine(engine)
            .metadata(StatxMask::BASIC_STATS);
        let found = scan.blocking_open(&dir).unwrap();
        assert_eq!(found.map(Result::unwrap).count(), FILES);
        let ahead = scan::readahead(&dir, &scan::Options::new().engine(engine)).unwrap();
        ahead.blocking_wait();
        assert_eq!(ahead.stats().done, FILES as u64);
    }
}

#[test]
fn few_descriptors_are_enough_for_all_files() {
    in_children(&["16", "64"], |role| {
        let _limit = Limit::new(format!("{role} descriptors"));
        let dir = scratch();
        let paths = tree(dir.path());
        limit(Resource::Nofile, role.parse().unwrap());
        for backend in backends() {
            let engine = Options::new().backend(backend).workers(48);
            everything_is_there(&engine.build().unwrap(), dir.path(), &paths);
        }
    });
}

#[test]
fn without_a_descriptor_every_file_has_an_error() {
    in_children(&["none"], |_| {
        let _limit = Limit::new("no descriptor".into());
        let dir = scratch();
        let paths = tree(dir.path());
        let engine = Options::new().build().unwrap();
        let options = walk::Options::new().engine(&engine);
        let mut walk = options.blocking_open(dir.path()).unwrap();
        limit(Resource::Nofile, 64);
        let mut hoard = Vec::new();
        // The engine closes descriptors with which it tried calls.
        for _ in 0..3 {
            while let Ok(file) = std::fs::File::open("/dev/null") {
                hoard.push(file);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let files = read_files::Options::new().engine(&engine);
        for file in read(&files, &paths, false) {
            assert_eq!(file.unwrap_err().errno(), Some(libc::EMFILE));
        }
        // The root is open. The directories below it are not.
        let failed = by_workers(&mut walk).filter_map(Result::err);
        let failed = failed.map(|error| assert_eq!(error.errno(), Some(libc::EMFILE)));
        assert_eq!(failed.count(), DIRECTORIES);
        drop(hoard);
        everything_is_there(&engine, dir.path(), &paths);
    });
}

#[test]
fn without_threads_the_caller_does_the_work() {
    if !is_root() {
        return slowdisk::skip_or_fail("not root: can't become another user");
    }
    let Some(dir) = role() else {
        // The user nobody can't remove it.
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        tree(dir.path());
        return in_child(dir.path().to_str().unwrap());
    };
    let _limit = Limit::new("no threads".into());
    let dir = Path::new(&dir);
    let files = |i| (0..FILES).map(move |j| dir.join(format!("d{i}/e/{j}")));
    let paths: Vec<PathBuf> = (0..DIRECTORIES).flat_map(files).collect();
    become_nobody();
    limit(Resource::Nproc, 0);
    // The process's engine cannot be made.
    let walk = walk::Options::new();
    assert_eq!(walked(&walk, dir, true), ENTRIES);
    let read = nowait::read_files(&paths).map(Result::unwrap);
    assert_eq!(read.count(), paths.len());
    let mut files = nowait::read_files(&paths);
    let error = pollster::block_on(files.next_file()).unwrap().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EAGAIN));
    let error = scan::readahead(dir, &scan::Options::new()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EAGAIN));
}

/// The size of the address space in bytes.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:"));
    let size = line.unwrap().split_whitespace().nth(1).unwrap();
    size.parse::<u64>().unwrap() << 10
}

#[test]
fn little_address_space_is_an_error_and_no_crash() {
    in_children(&["64", "256"], |role| {
        let _limit = Limit::new(format!("{role} MiB of address space"));
        let dir = scratch();
        let paths = tree(dir.path());
        let large = dir.path().join("large");
        let file = std::fs::File::create(&large).unwrap();
        file.set_len(1 << 30).unwrap();
        let open = nowait::File::blocking_open(&large).unwrap();
        // The standard library ends a process that has no memory for a small allocation. Few workers leave some.
        let room = role.parse::<u64>().unwrap() << 20;
        limit(Resource::As, address_space() + room);
        for backend in backends() {
            for depth in [64, 32_768] {
                let options = Options::new().backend(backend).depth(depth);
                let made = [
                    options.build().map(drop).err(),
                    options.build_local().map(drop).err(),
                ];
                for error in made.into_iter().flatten() {
                    assert!(error.errno().is_some(), "{error}");
                }
            }
        }
        match Mapping::new(&open) {
            Ok(mapping) => assert!(mapping.get(0..4096).is_none_or(|b| b.len() <= 4096)),
            Err(error) => assert_eq!(error.errno(), Some(libc::ENOMEM), "{error}"),
        }
        assert!(BufferPool::new(1 << 10, 1 << 20).is_err());
        let engine = Options::new().workers(4).build().unwrap();
        let walk = walk::Options::new().engine(&engine);
        assert_eq!(walked(&walk, dir.path(), true), 1 + ENTRIES);
        let files = read_files::Options::new().engine(&engine);
        let all = read(&files, &paths, false);
        assert_eq!(all.map(Result::unwrap).count(), paths.len());
        // The others are read while this one fails.
        let mut failed = 0;
        for file in read(&files, paths.iter().chain([&large]).chain(&paths), false) {
            if let Err(error) = file {
                assert_eq!(error.errno(), Some(libc::ENOMEM), "{error}");
                failed += 1;
            }
        }
        assert_eq!(failed, 1);
    });
}

/// A memory cgroup with a limit, in which the calling process is. The hierarchy is that of version 1.
struct Group {
    mount: tempfile::TempDir,
    group: PathBuf,
}

impl Group {
    /// Returns `None` if the kernel has no such hierarchy, or the process may not mount it.
    fn enter(limit: u64) -> Option<Group> {
        use rustix::mount::{MountFlags, mount};
        let at = tempfile::tempdir().unwrap();
        mount("none", at.path(), "cgroup", MountFlags::empty(), c"memory").ok()?;
        let group = at.path().join(format!("nowait-{}", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        std::fs::write(group.join("memory.limit_in_bytes"), limit.to_string()).unwrap();
        std::fs::write(group.join("cgroup.procs"), "0").unwrap();
        Some(Group { mount: at, group })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let root = self.mount.path().join("cgroup.procs");
        let _ = std::fs::write(root, "0");
        let _ = std::fs::remove_dir(&self.group);
        let _ = rustix::mount::unmount(self.mount.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_cgroup_of_64_mib_is_enough() {
    in_children(&["alone"], |_| {
        if !is_root() {
            return slowdisk::skip_or_fail("not root: can't mount the hierarchy of cgroups");
        }
        let _limit = Limit::new("a cgroup of 64 MiB".into());
        let dir = scratch();
        let paths = tree(dir.path());
        let large = dir.path().join("large");
        std::fs::write(&large, pattern(0, 100 << 20)).unwrap();
        evict(&large);
        let Some(_group) = Group::enter(64 << 20) else {
            return slowdisk::skip_or_fail("no memory cgroup of version 1 can be mounted");
        };
        for backend in backends() {
            let engine = Options::new().backend(backend).build().unwrap();
            let walk = walk::Options::new().engine(&engine);
            assert_eq!(walked(&walk, dir.path(), true), 1 + ENTRIES);
            let files = read_files::Options::new().engine(&engine);
            let read = files.read(&paths).map(Result::unwrap);
            assert_eq!(read.count(), paths.len());
            let mut options = nowait::OpenOptions::new();
            let file = options.read(true).engine(&engine).blocking_open(&large);
            let file = file.unwrap();
            for at in (0..100).map(|i| i << 20) {
                let read = pollster::block_on(file.read_at(vec![0; 1 << 20], at));
                assert!(read.into_result().unwrap().1 == pattern(at, 1 << 20));
            }
            // Locked windows of mappings count as well.
            let budget = BudgetOptions::new().limit(16 << 20).build().unwrap();
            let mapping = Mapping::within(&file, &budget).unwrap();
            for at in (0..100).map(|i| i << 20) {
                let Ok(bytes) = mapping.blocking_load(at..at + 4096) else {
                    assert!(mapping.why().is_some());
                    break;
                };
                assert!(*bytes == pattern(at, 4096));
            }
        }
    });
}
