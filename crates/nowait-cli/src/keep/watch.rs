//! The directories whose changes inotify(7) reports. A change is a name in a directory. What the
//! change was is not looked at: the keeper examines the name.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::directory::Number;
use super::events::Events;

/// A purpose of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The directory with the second number belongs to the tree of the path with the first one.
    Tree(usize, Number),
    /// The path with this number leads through this name in the directory.
    Way(usize, OsString),
}

/// The purposes of a watch. A directory may have the files of very many given paths.
#[derive(Default)]
struct Purposes {
    trees: HashSet<(usize, Number)>,
    /// The numbers of paths, by their names in the directory.
    ways: HashMap<OsString, HashSet<usize>>,
}

impl Purposes {
    fn add(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Tree(number, directory) => _ = self.trees.insert((number, directory)),
            Purpose::Way(number, name) => _ = self.ways.entry(name).or_default().insert(number),
        }
    }

    fn remove(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Tree(number, directory) => _ = self.trees.remove(&(number, directory)),
            Purpose::Way(number, name) => {
                if let Some(numbers) = self.ways.get_mut(&name) {
                    numbers.remove(&number);
                    if numbers.is_empty() {
                        self.ways.remove(&name);
                    }
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.ways.is_empty()
    }
}

/// Watches of directories.
pub struct Watches {
    inotify: Option<Arc<OwnedFd>>,
    purposes: HashMap<i32, Purposes>,
    /// The last reason for which a directory could not be watched.
    pub why: Option<Errno>,
}

/// Changes of names, and of files that were written and closed. A file that is being written raises
/// no event: its new pages are in the page cache.
const TREE: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::MASK_ADD);

impl Watches {
    /// Watches nothing yet.
    pub fn new() -> Watches {
        let mut watches = Watches {
            inotify: None,
            purposes: HashMap::new(),
            why: None,
        };
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(fd) => watches.inotify = Some(Arc::new(fd)),
            Err(why) => watches.why = Some(why),
        }
        watches
    }

    /// The descriptor that events are read from; `None` if the kernel gave none.
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.inotify.clone()
    }

    /// Watches a directory, also for this purpose. Returns the number of the watch.
    pub fn add(&mut self, directory: &Path, purpose: Purpose) -> Option<i32> {
        let Some(fd) = &self.inotify else {
            return None;
        };
        match inotify::add_watch(&**fd, directory, TREE) {
            Ok(watch) => {
                self.purposes.entry(watch).or_default().add(purpose);
                Some(watch)
            }
            // The directory was removed or replaced, which is an event in its parent.
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(why) => {
                self.why = Some(why);
                None
            }
        }
    }

    /// Watches an open directory. Unlike its path, the descriptor cannot lead to another directory.
    pub fn add_open(&mut self, directory: impl AsFd, purpose: Purpose) -> Option<i32> {
        let link = format!("/proc/thread-self/fd/{}", directory.as_fd().as_raw_fd());
        self.add(Path::new(&link), purpose)
    }

    /// Returns true if the kernel has not ended a watch.
    pub fn has(&self, watch: i32) -> bool {
        self.purposes.contains_key(&watch)
    }

    /// Ends a purpose of a watch, and the watch with the last one.
    pub fn remove(&mut self, watch: i32, purpose: Purpose) {
        let Some(purposes) = self.purposes.get_mut(&watch) else {
            return;
        };
        purposes.remove(purpose);
        if purposes.is_empty() {
            self.forget(watch);
            if let Some(fd) = &self.inotify {
                // The kernel has ended the watch if the directory is gone.
                let _ = inotify::remove_watch(&**fd, watch);
            }
        }
    }

    /// Forgets a watch that the kernel has ended.
    pub fn forget(&mut self, watch: i32) {
        self.purposes.remove(&watch);
    }

    /// Ends all watches.
    pub fn clear(&mut self) {
        let watches: Vec<i32> = self.purposes.drain().map(|(watch, _)| watch).collect();
        for watch in watches {
            if let Some(fd) = &self.inotify {
                let _ = inotify::remove_watch(&**fd, watch);
            }
        }
    }

    /// The numbers of the paths that lead through a name in a directory.
    pub fn ways(&self, watch: i32, name: &OsStr) -> impl Iterator<Item = usize> {
        let purposes = self.purposes.get(&watch);
        let numbers = purposes.and_then(|purposes| purposes.ways.get(name));
        numbers.into_iter().flatten().copied()
    }

    /// The numbers of the paths to whose trees a directory belongs, and its number there.
    pub fn trees(&self, watch: i32) -> impl Iterator<Item = (usize, Number)> {
        let purposes = self.purposes.get(&watch);
        let trees = purposes.into_iter().flat_map(|purposes| &purposes.trees);
        trees.copied()
    }
}

/// The most events that are taken at once, so that signals are handled in between.
const MAX_TAKEN: usize = 16_384;

/// Takes events from the kernel's queue. Returns true if there were some.
pub fn read(fd: &OwnedFd, events: &mut Events) -> bool {
    let mut buffer = [const { MaybeUninit::uninit() }; 16 << 10];
    let mut reader = inotify::Reader::new(fd, &mut buffer);
    let mut taken = 0;
    // Events in the buffer are not in the queue any more.
    while taken < MAX_TAKEN || !reader.is_buffer_empty() {
        let Ok(event) = reader.next() else { break };
        taken += 1;
        let flags = event.events();
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            events.overflow();
        } else if flags.contains(ReadFlags::IGNORED) {
            events.ended.push(event.wd());
        } else if let Some(name) = event.file_name() {
            let name = OsStr::from_bytes(name.to_bytes());
            events.changed(event.wd(), name.to_owned());
        }
    }
    taken > 0
}

/// The directories and names that a path leads through, also by symbolic links. If one of these names
/// changes, the path may lead to another file. The last one does not exist if the path does not.
pub fn way(path: &Path) -> Vec<(PathBuf, OsString)> {
    use std::path::Component;
    // As in the kernel (path_resolution(7)).
    const MAX_LINKS: usize = 40;
    let mut at = PathBuf::from("/");
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest: Vec<PathBuf> = Vec::new();
    let push = |rest: &mut Vec<PathBuf>, path: &Path| {
        rest.extend(
            path.components()
                .rev()
                .map(|one| PathBuf::from(one.as_os_str())),
        );
    };
    push(&mut rest, &absolute);
    let mut way = Vec::new();
    let mut links = 0;
    while let Some(next) = rest.pop() {
        match next.components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => _ = at.pop(),
            Some(Component::Normal(name)) => {
                way.push((at.clone(), name.to_owned()));
                let below = at.join(name);
                match std::fs::read_link(&below) {
                    Ok(target) if links < MAX_LINKS => {
                        links += 1;
                        push(&mut rest, &target);
                    }
                    Ok(_) => break,
                    // EINVAL: not a link.
                    Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => at = below,
                    Err(_) => break,
                }
            }
            _ => {}
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_leads_through_links_to_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir(root.join("v1")).unwrap();
        std::fs::write(root.join("v1/file"), "x").unwrap();
        std::os::unix::fs::symlink("v1", root.join("current")).unwrap();
        let steps = |path: &str| {
            let way = way(&root.join(path));
            let below = way.into_iter().filter(|(at, _)| at.starts_with(&root));
            let named = below.map(|(at, name)| at.join(name));
            let steps: Vec<_> = named
                .map(|at| at.strip_prefix(&root).unwrap().to_owned())
                .collect();
            steps
        };
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(steps("current/file"), paths(&["current", "v1", "v1/file"]));
        assert_eq!(steps("v1/../v1/file"), paths(&["v1", "v1", "v1/file"]));
        assert_eq!(steps("v2/file"), paths(&["v2"]));
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        assert!(steps("loop").len() > 1);
    }
}
