//! Walks of trees that are deeper than any path may be long.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nowait::walk::{self, Opener, Walk};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, symlinkat};

use crate::common::by_workers::{by_workers, found};
use crate::common::children::{alone, role};
use crate::common::nobody::in_child_as_nobody;
use crate::common::open_paths::open_below;
use crate::directories::engines;
use crate::limits::limit;

/// The number of levels. A path of 2,048 levels has PATH_MAX bytes.
const LEVELS: usize = 8_192;
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// A directory for a deep tree, in memory. The standard library cannot remove such a tree: it holds a descriptor
/// for each level.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        let memory = Path::new("/dev/shm");
        Scratch(match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        })
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::process::Command::new("rm")
            .arg("-rf")
            .arg(self.path())
            .status();
    }
}

fn open(at: impl AsFd, name: &CStr) -> OwnedFd {
    openat(at, name, DIRECTORY, Mode::empty()).unwrap()
}

fn file(at: impl AsFd, name: &str) {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(at, name, flags, 0o600.into()).unwrap();
}

/// Makes a directory and opens it.
fn directory(at: impl AsFd, name: &CStr) -> OwnedFd {
    mkdirat(&at, name, 0o700.into()).unwrap();
    open(at, name)
}

/// The number of descriptors of this process. The path of one can be too long to be read.
fn descriptors_open() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Makes a chain of directories. Each of them has a sibling with a file, so that a walk comes back to
/// every level.
fn chain(root: &Path, levels: usize) {
    let mut at = open(CWD, &CString::new(root.to_str().unwrap()).unwrap());
    for level in 0..levels {
        let other = |at: &OwnedFd| file(directory(at, c"b"), "f");
        // The one that was made last is listed first on some filesystems.
        if level % 2 == 0 {
            other(&at);
        }
        let below = directory(&at, c"a");
        if level % 2 == 1 {
            other(&at);
        }
        at = below;
    }
}

/// Random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn name(&mut self, prefix: char) -> CString {
        CString::new(format!("{prefix}{:x}", self.below(0x10000))).unwrap()
    }
}

/// Makes a tree with this number of levels: mostly a chain, with bushes, links and files beside it.
/// Names that begin with `m` are those of bushes that may be moved.
fn random_tree(root: &Path, levels: usize, random: &mut Random) {
    let mut at = open(CWD, &CString::new(root.to_str().unwrap()).unwrap());
    for _ in 0..levels {
        let kind = random.below(16);
        if kind == 0 {
            let name = random.name('m');
            let bush = directory(&at, &name);
            for _ in 0..random.below(6) {
                bush_below(&bush, random);
            }
        } else if kind == 1 {
            file(&at, "file");
        } else if kind == 2 {
            symlinkat("../..", &at, "up").unwrap();
        } else if kind == 3 {
            symlinkat("/", &at, "root").unwrap();
        }
        let name = random.name('d');
        at = directory(&at, &name);
    }
    file(&at, "leaf");
}

fn bush_below(bush: &OwnedFd, random: &mut Random) {
    let name = random.name('e');
    if mkdirat(bush, &name, 0o700.into()).is_err() {
        return;
    }
    let mut at = open(bush, &name);
    for _ in 0..random.below(10) {
        let name = random.name('c');
        at = directory(&at, &name);
    }
    file(&at, "twig");
}

/// Every entry below a directory, by the inode number of its directory and its name. Directories are
/// opened relative to their parents.
fn listed(root: &Path) -> BTreeSet<(u64, Vec<u8>)> {
    let mut entries = BTreeSet::new();
    let mut at = open(CWD, &CString::new(root.to_str().unwrap()).unwrap());
    // The subdirectories of each level that are still to be listed.
    let mut rest: Vec<Vec<CString>> = Vec::new();
    loop {
        let mut below = Vec::new();
        let ino = rustix::fs::fstat(&at).unwrap().st_ino;
        for entry in Dir::read_from(&at).unwrap() {
            let entry = entry.unwrap();
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            assert!(entries.insert((ino, entry.file_name().to_bytes().to_vec())));
            if entry.file_type() == FileType::Directory {
                below.push(entry.file_name().to_owned());
            }
        }
        rest.push(below);
        loop {
            let Some(level) = rest.last_mut() else {
                return entries;
            };
            if let Some(name) = level.pop() {
                at = open(&at, &name);
                break;
            }
            rest.pop();
            at = open(&at, c"..");
        }
    }
}

/// Walks a tree. Returns every entry, by the inode number of its directory and its name.
fn walked(walk: &mut Walk, caller: bool) -> BTreeSet<(u64, Vec<u8>)> {
    let mut entries = BTreeSet::new();
    for entry in found(walk, caller) {
        let entry = entry.unwrap();
        let name = entry.file_name().as_encoded_bytes().to_vec();
        assert!(
            entries.insert((entry.dir().id().1, name)),
            "{entry:?} twice"
        );
    }
    entries
}

#[test]
fn a_deep_tree_is_walked_with_few_descriptors() {
    alone(|| {
        let root = Scratch::new();
        chain(root.path(), LEVELS);
        let before = descriptors_open();
        for (engine, (descriptors, caller)) in engines().iter().zip([(4, true), (64, false)]) {
            let options = walk::Options::new().engine(engine);
            let options = options.descriptors(descriptors);
            let mut walk = options.blocking_open(root.path()).unwrap();
            let (mut entries, mut deepest, mut most_open) = (0, 0, 0);
            for entry in found(&mut walk, caller) {
                let entry = entry.unwrap();
                deepest = deepest.max(entry.depth());
                entries += 1;
                if entries % 256 == 0 {
                    most_open = most_open.max(descriptors_open());
                }
            }
            assert_eq!((entries, deepest), (3 * LEVELS, LEVELS + 1));
            // Each worker opens one more for a moment.
            let most = before + descriptors + 20;
            assert!(most_open <= most, "{most_open} of {most} are open");
            drop(walk);
            assert!(open_below(root.path()).is_empty());
        }
    });
}

#[test]
fn a_random_deep_tree_is_that_of_a_plain_walk() {
    let root = Scratch::new();
    random_tree(root.path(), LEVELS, &mut Random(0x2545_f491_4f6c_dd1d));
    let expected = listed(root.path());
    for (engine, caller) in engines().iter().zip([true, false]) {
        let options = walk::Options::new().engine(engine);
        let mut walk = options.blocking_open(root.path()).unwrap();
        assert!(walked(&mut walk, caller) == expected);
    }
}

/// Bushes of the tree are moved out of it and back while it is walked. Outside of the tree they have
/// neighbours with the names of the tree, which the walk must not find.
#[test]
fn a_walk_stays_in_a_deep_tree_from_which_directories_are_moved() {
    let (root, elsewhere) = (Scratch::new(), Scratch::new());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    random_tree(root.path(), 2_000, &mut random);
    let all = listed(root.path());
    let inside: BTreeSet<u64> = all.iter().map(|(directory, _)| *directory).collect();
    let spine = open(CWD, &CString::new(root.path().to_str().unwrap()).unwrap());
    let outside = open(
        CWD,
        &CString::new(elsewhere.path().to_str().unwrap()).unwrap(),
    );
    // The names beside the place that bushes are moved to.
    for (_, name) in &all {
        let name = CString::new(name.clone()).unwrap();
        if mkdirat(&outside, &name, 0o700.into()).is_ok() {
            file(open(&outside, &name), "secret");
        }
    }
    let mut bushes = Vec::new();
    let mut at = spine;
    loop {
        let names = Dir::read_from(&at)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_owned());
        let names: Vec<CString> = names.collect();
        for name in names
            .iter()
            .filter(|name| name.to_bytes().starts_with(b"m"))
        {
            bushes.push((at.try_clone().unwrap(), name.clone()));
        }
        match names.iter().find(|name| name.to_bytes().starts_with(b"d")) {
            Some(name) => at = open(&at, name),
            None => break,
        }
    }
    assert!(bushes.len() > 50);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                for (at, name) in &bushes {
                    renameat(at, name, &outside, c"moved").unwrap();
                    std::thread::yield_now();
                    renameat(&outside, c"moved", at, name).unwrap();
                }
            }
        });
        let mut wrong = None;
        for round in 0..8 {
            let engines = engines();
            let options = walk::Options::new().engine(&engines[round % engines.len()]);
            let mut walk = options.workers(2).blocking_open(root.path()).unwrap();
            let mut chain = 0;
            for entry in by_workers(&mut walk).filter_map(Result::ok) {
                let name = entry.file_name().as_encoded_bytes();
                chain += usize::from(name.starts_with(b"d"));
                if !inside.contains(&entry.dir().id().1) || name == b"secret" {
                    wrong = Some(format!("{entry:?}"));
                }
            }
            if chain != 2_000 {
                wrong = Some(format!("{chain} levels"));
            }
        }
        over.store(true, Relaxed);
        assert_eq!(wrong, None);
    });
}

/// While a walk is far below a directory, the directory is moved to a place with other neighbours.
/// The way up from it leads there.
#[test]
fn the_way_up_is_left_if_it_leads_elsewhere() {
    for mounted in [false, true] {
        if mounted {
            slowdisk::require!(slowdisk::available());
        }
        let (root, elsewhere) = (Scratch::new(), Scratch::new());
        let mut at = open(CWD, &CString::new(root.path().to_str().unwrap()).unwrap());
        let mut path = root.path().to_owned();
        let mut mount = None;
        for level in 0..200 {
            // The sibling comes after the chain on tmpfs, and before it elsewhere: both orders occur.
            for name in [c"z", c"b"] {
                file(directory(&at, name), "inside");
            }
            at = directory(&at, c"m");
            path.push("m");
            if mounted && level == 90 {
                rustix::mount::mount(
                    "none",
                    &path,
                    "tmpfs",
                    rustix::mount::MountFlags::empty(),
                    None,
                )
                .unwrap();
                mount = Some(path.clone());
                at = open(CWD, &CString::new(path.to_str().unwrap()).unwrap());
            }
        }
        let mut neighbours = elsewhere.path().to_owned();
        for _ in 0..60 {
            for name in ["z", "b"] {
                fs::create_dir(neighbours.join(name)).unwrap();
                File::create(neighbours.join(name).join("secret")).unwrap();
            }
            neighbours.push("m");
            fs::create_dir(&neighbours).unwrap();
        }
        for engine in engines() {
            let options = walk::Options::new().engine(&engine).workers(1);
            // The walk does not run far ahead of its consumer.
            let options = options.max_buffered(1, 1);
            let mut walk = options.blocking_open(root.path()).unwrap();
            let (mut inside, mut moved) = (0, false);
            let from = root.path().join("m/".repeat(if mounted { 91 } else { 60 }));
            let from = if mounted { from.join("m/m/m") } else { from };
            let to = neighbours.join("here");
            for entry in walk.by_ref() {
                let entry = entry.unwrap();
                assert_ne!(entry.file_name(), "secret", "{}", entry.path().display());
                inside += usize::from(entry.file_name() == "inside");
                if entry.depth() > 150 && !moved && !mounted {
                    fs::rename(&from, &to).unwrap();
                    moved = true;
                }
            }
            // 60 levels stay in any case.
            assert!(inside >= 2 * 59, "{inside}");
            if moved {
                fs::rename(&to, &from).unwrap();
            } else {
                assert_eq!(inside, 400);
            }
        }
        if let Some(mount) = mount {
            rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}

#[test]
fn directories_without_permission_are_errors_among_the_rest_of_a_deep_tree() {
    if role().is_none() {
        in_child_as_nobody("nobody", |_| ());
        return;
    }
    let root = Scratch::new();
    chain(root.path(), 300);
    let path = |level: usize| root.path().join("a/".repeat(level) + "b");
    // Without x a directory can be listed, but nothing in it opened, and ".." of it not either.
    for (level, mode) in [(50, 0o000), (150, 0o600), (250, 0o300)] {
        fs::create_dir(path(level).join("below")).unwrap();
        rustix::fs::chmod(path(level), mode.into()).unwrap();
    }
    for engine in engines() {
        let walk = walk::Options::new()
            .engine(&engine)
            .blocking_open(root.path());
        let (found, errors): (Vec<_>, Vec<_>) = walk.unwrap().partition(Result::is_ok);
        assert_eq!(errors.len(), 3, "{errors:?}");
        // Of the three directories, the second one is listed.
        assert_eq!(found.len(), 3 * 300 - 2 + 1);
    }
    for level in [50, 150, 250] {
        rustix::fs::chmod(path(level), 0o700.into()).unwrap();
    }
}

#[test]
fn files_of_a_deep_tree_are_opened_by_directory_and_name() {
    alone(|| {
        let root = Scratch::new();
        chain(root.path(), 3_000);
        let opener = Opener::new(File::open(root.path()).unwrap()).unwrap();
        let entries: Vec<_> = Walk::blocking_open(root.path())
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let before = descriptors_open();
        let id = |fd: OwnedFd| File::from(fd).metadata().unwrap().ino();
        for entry in entries.iter().chain(entries.iter().rev()) {
            let opened = opener
                .open(entry.dir(), entry.file_name(), OFlags::PATH)
                .unwrap();
            assert_eq!(id(opened), entry.ino());
        }
        assert!(descriptors_open() <= before + 16);
        // Directories that are kept open are closed if no descriptor is left.
        let deepest = entries.iter().max_by_key(|entry| entry.depth()).unwrap();
        limit(256);
        let mut hoard = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            hoard.push(file);
        }
        let opened = opener
            .open(deepest.dir(), deepest.file_name(), OFlags::PATH)
            .unwrap();
        assert_eq!(id(opened), deepest.ino());
        drop(hoard);
        let error = opener.open(deepest.dir(), "..", OFlags::PATH).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EXDEV));
        let error = opener.open(deepest.dir(), "a/b", OFlags::PATH).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EXDEV));
        let error = opener
            .open(deepest.dir(), "none", OFlags::PATH)
            .unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert_eq!(
            error.path(),
            Some(deepest.dir().path().join("none").as_path())
        );
    });
}
