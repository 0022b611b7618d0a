//! Loads what a profile names, while the program starts: the inodes of paths, the names of
//! directories, and ranges of files.
//!
//! Some threads make calls that wait for the disk, so that there are many requests in flight. Each
//! file and each directory is one thread's, in the order in which the program has used them, except
//! that files that are close to each other in this order are opened by inode number, which is roughly
//! their order on the disk. posix_fadvise(2) starts to read a range and does not wait for it: the program
//! itself waits if it is earlier.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nowait_page_cache::{Allowed, Budget, FileRef, Stamp, begin_to_read, proc};
use nowait_residency::tasks::threads_beside_program;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, open, statat};

use super::profile::{Entry, FileUse, Profile};

/// The sums of what was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loaded {
    /// The number of opened files.
    pub files: u64,
    /// The bytes of their ranges, which may have been cached before.
    pub bytes: u64,
    /// The number of files of the last run that are gone, or were changed since.
    pub changed: u64,
    /// The others were not loaded, because some that were tried are cached.
    pub is_cached: bool,
    /// The time that the calls took.
    pub time: Duration,
}

const THREADS: usize = 32;
/// So many paths are opened in the order of their inode numbers.
const WINDOW: usize = 128;
/// A file that was replaced is loaded as a whole if it is not larger.
const REPLACED: u64 = 256 << 10;
/// The part of the available memory that is loaded.
const BUDGET: Allowed = Allowed::Percent(25);
/// The maximum number of inodes of a directory that are loaded.
const MAX_INODES: usize = 50_000;

/// The number of items that are tried first, and the time for that.
const SAMPLE: usize = 64;
const SAMPLE_TIME: Duration = Duration::from_millis(30);

/// The work on a profile, for several threads.
struct Loader<'a> {
    items: Vec<Item<'a>>,
    next: AtomicUsize,
    /// The bytes that may still be loaded.
    left: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    changed: AtomicU64,
}

/// A part of the work, for one thread.
enum Item<'a> {
    /// Look-ups in a directory. Several threads would wait for the same blocks.
    Directory(PathBuf, Directory<'a>),
    File(PathBuf, &'a FileUse, Used),
}

/// The run that has used a file last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Used {
    InLastRun,
    Before,
}

/// The use of a directory.
#[derive(Default)]
struct Directory<'a> {
    is_listed: bool,
    /// All inodes are loaded.
    many_looked_up: bool,
    /// The names that were looked up.
    names: Vec<&'a OsStr>,
}

/// Loads a profile. Relative paths are relative to `directory`. Ends early if `is_over` returns true,
/// or if all seems to be cached.
pub fn load(profile: &Profile, directory: &Path, is_over: impl Fn() -> bool + Sync) -> Loaded {
    let began = Instant::now();
    let mut loader = Loader {
        items: items(profile, directory),
        left: AtomicU64::new(Budget::new(BUDGET).max()),
        next: AtomicUsize::new(0),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        changed: AtomicU64::new(0),
    };
    // Some of the items are tried first. If they needed no read, the others hardly do.
    let step = loader.items.len().div_ceil(SAMPLE).max(1);
    let before = read_bytes();
    let is_cached = before.is_some()
        && loader.items.iter().step_by(step).all(|item| {
            loader.load(item);
            !is_over() && began.elapsed() < SAMPLE_TIME && read_bytes() == before
        });
    if !is_cached {
        std::thread::scope(|scope| {
            let threads = THREADS.min(loader.items.len().div_ceil(4));
            let threads = threads_beside_program(threads);
            for _ in 0..threads {
                let thread = std::thread::Builder::new().name("load".to_owned());
                // With fewer threads it takes longer.
                if thread
                    .spawn_scoped(scope, || loader.work(&is_over))
                    .is_err()
                {
                    break;
                }
            }
        });
    }
    Loaded {
        files: *loader.files.get_mut(),
        bytes: *loader.bytes.get_mut(),
        changed: *loader.changed.get_mut(),
        is_cached,
        time: began.elapsed(),
    }
}

/// The work in order: a directory comes before its files. The program unmounts some filesystems: an open file there would
/// make umount(2) fail.
fn items<'a>(profile: &'a Profile, directory: &Path) -> Vec<Item<'a>> {
    let unmounted = profile.entries.iter().filter(|entry| entry.uses.unmounted);
    let unmounted: Vec<PathBuf> = unmounted.map(|it| directory.join(&it.path)).collect();
    let is_loaded = |entry: &&Entry| {
        let path = directory.join(&entry.path);
        !unmounted.iter().any(|point| path.starts_with(point))
    };
    let mut entries: Vec<&Entry> = profile.entries.iter().filter(is_loaded).collect();
    let inode = |entry: &&Entry| entry.file.as_ref().map_or(0, |file| file.stamp.inode);
    for window in entries.chunks_mut(WINDOW) {
        window.sort_by_key(inode);
    }
    let mut items = Vec::with_capacity(entries.len());
    let mut numbers: HashMap<PathBuf, usize> = HashMap::new();
    for entry in entries {
        let path = directory.join(&entry.path);
        let is_directory = entry.uses.listed || entry.uses.many_looked_up;
        let of = match path.parent() {
            Some(parent) if !is_directory => parent,
            _ => &path,
        };
        let number = *numbers.entry(of.to_owned()).or_insert_with(|| {
            items.push(Item::Directory(of.to_owned(), Directory::default()));
            items.len() - 1
        });
        if let Some(file) = &entry.file {
            let used = match entry.uses.unused {
                0 => Used::InLastRun,
                _ => Used::Before,
            };
            items.push(Item::File(path, file, used));
        } else if let Item::Directory(_, used) = &mut items[number] {
            used.is_listed |= entry.uses.listed;
            used.many_looked_up |= entry.uses.many_looked_up;
            used.names
                .extend(entry.path.file_name().filter(|_| !is_directory));
        }
    }
    items
}

/// Loads the inodes of a directory. They are looked up in the order of their numbers if all are
/// wanted: some of them are in one block.
fn look_up(path: &Path, used: &Directory<'_>) {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_read = used.is_listed || used.many_looked_up;
    let access = if is_read {
        OFlags::RDONLY | OFlags::NONBLOCK
    } else {
        OFlags::PATH
    };
    let Ok(directory) = open(path, flags | access, Mode::empty()) else {
        return;
    };
    let mut inodes: Vec<DirEntry> = Vec::new();
    if is_read && let Ok(names) = Dir::read_from(&directory) {
        let names = names.flatten();
        match used.many_looked_up {
            true => inodes.extend(names.take(MAX_INODES)),
            false => names.for_each(drop),
        }
    }
    inodes.sort_unstable_by_key(DirEntry::ino);
    let (listed, flags) = (
        inodes.iter().map(DirEntry::file_name),
        AtFlags::SYMLINK_NOFOLLOW,
    );
    listed.for_each(|name| _ = statat(&directory, name, flags));
    if !used.many_looked_up {
        used.names
            .iter()
            .for_each(|name| _ = statat(&directory, *name, flags));
    }
}

/// The bytes that this process has read from disks. `None` if the kernel does not count them.
fn read_bytes() -> Option<u64> {
    proc::number_of(&proc::read("/proc/self/io"), "read_bytes:")
}

impl Loader<'_> {
    fn work(&self, is_over: &(impl Fn() -> bool + Sync)) {
        while !is_over()
            && let Some(item) = self.items.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            self.load(item);
        }
    }

    fn load(&self, item: &Item<'_>) {
        match item {
            Item::Directory(path, used) => look_up(path, used),
            Item::File(path, file, used) => {
                let is_changed = !self.load_file(path, file) && *used == Used::InLastRun;
                self.changed
                    .fetch_add(u64::from(is_changed), Ordering::Relaxed);
            }
        }
    }

    /// Loads the ranges of a file. Returns false if it is gone or was changed.
    fn load_file(&self, path: &Path, used: &FileUse) -> bool {
        let named = FileRef::given(path.to_owned(), used.stamp.inode, FileType::RegularFile);
        let Ok((file, stat)) = named.open_for_readahead() else {
            return false;
        };
        self.files.fetch_add(1, Ordering::Relaxed);
        let whole = 0..stat.st_size as u64;
        let is_same = Stamp::of(&stat) == used.stamp;
        let ranges = match is_same {
            true => used.ranges.as_slice(),
            // Another version of it is needed in the same way, more or less.
            false if whole.end <= REPLACED => std::slice::from_ref(&whole),
            false => &[],
        };
        for part in ranges.iter().flat_map(parts) {
            let len = part.end - part.start;
            let take = |left: u64| left.checked_sub(len);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            if self.left.fetch_update(success, failure, take).is_err() {
                break;
            }
            begin_to_read(&file, &part);
            self.bytes.fetch_add(len, Ordering::Relaxed);
        }
        is_same
    }
}

/// Parts that take little of the memory that may be used: other files have their share.
fn parts(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    const LONGEST: u64 = 1 << 20;
    let end = range.end;
    let starts = (range.start..end).step_by(LONGEST as usize);
    starts.map(move |start| start..end.min(start.saturating_add(LONGEST)))
}

#[cfg(test)]
mod tests {
    use crate::file_list::Uses;

    use super::*;

    #[test]
    fn names_are_looked_up_by_directory() {
        let entry = |path: &str| Entry {
            path: path.into(),
            ..Entry::default()
        };
        let listed = |path: &str| Entry {
            uses: Uses {
                listed: true,
                ..Uses::default()
            },
            ..entry(path)
        };
        let crowded = |path: &str| Entry {
            uses: Uses {
                many_looked_up: true,
                ..Uses::default()
            },
            ..entry(path)
        };
        let entries = vec![
            entry("/a/x"),
            entry("b/y"),
            listed("/a"),
            entry("/a/z"),
            crowded("/c"),
            entry("/"),
        ];
        let profile = Profile {
            entries,
            ..Profile::default()
        };
        let mut found = Vec::new();
        for item in items(&profile, Path::new("/d")) {
            let Item::Directory(path, used) = item else {
                panic!("there is no file")
            };
            let names: Vec<&str> = used
                .names
                .iter()
                .map(|name| name.to_str().unwrap())
                .collect();
            found.push((
                path.to_str().unwrap().to_owned(),
                names.join(" "),
                used.is_listed,
                used.many_looked_up,
            ));
        }
        let expected = [
            ("/a", "x z", true, false),
            ("/d/b", "y", false, false),
            ("/c", "", false, true),
            ("/", "", false, false),
        ];
        assert_eq!(
            found,
            expected.map(|(path, names, a, b)| (path.into(), names.into(), a, b))
        );
    }
}
