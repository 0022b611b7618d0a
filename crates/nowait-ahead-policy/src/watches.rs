//! The directories and files that a program opens, as inotify(7) tells.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nowait::scan::Batch;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::directory::Id;

/// Watches of the directories of one tree.
pub struct Watches {
    root: PathBuf,
    inotify: OwnedFd,
    /// Files are reported, too.
    files: bool,
    ids: HashMap<i32, Id>,
    seen: HashSet<Id>,
}

/// The directories and files that were opened since the last query, by the program or by this
/// process.
#[derive(Debug, Default)]
pub struct Opened {
    /// The directories.
    pub directories: Vec<Id>,
    /// The numbers of files, by directory.
    pub files: HashMap<Id, u64>,
}

impl Watches {
    /// Watches nothing yet. `root` is the absolute path of the tree. With `files`, the opening of
    /// files is reported, too.
    pub fn new(root: PathBuf, files: bool) -> io::Result<Watches> {
        Ok(Watches {
            root,
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            files,
            ids: HashMap::new(),
            seen: HashSet::new(),
        })
    }

    /// Watches a directory that the walk has read. The walk has opened it before, so the program
    /// opens it next.
    pub fn add(&mut self, found: &Batch) {
        let id = found.dir().id();
        if !self.seen.insert(id) {
            return;
        }
        let path = self.root.join(found.dir().path());
        let flags = WatchFlags::OPEN | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        // Beyond the limit of watches (fs.inotify.max_user_watches) fewer directories are reported,
        // and the walk waits earlier.
        if let Ok(watch) = inotify::add_watch(&self.inotify, path, flags) {
            self.ids.insert(watch, id);
        }
    }

    /// The directories and files that were opened since the last call. Without files, a directory
    /// is reported once.
    pub fn opened(&mut self) -> Opened {
        let mut buf = [const { MaybeUninit::uninit() }; 16 << 10];
        let mut events = inotify::Reader::new(&self.inotify, &mut buf);
        let mut opened = Opened::default();
        while let Ok(event) = events.next() {
            let Some(&id) = self.ids.get(&event.wd()) else {
                continue;
            };
            if !event.events().contains(ReadFlags::OPEN) {
                continue;
            }
            // An event with a name is about a file in the directory.
            if event.file_name().is_some() {
                if self.files && !event.events().contains(ReadFlags::ISDIR) {
                    *opened.files.entry(id).or_default() += 1;
                }
                continue;
            }
            opened.directories.push(id);
            if !self.files {
                self.ids.remove(&event.wd());
                let _ = inotify::remove_watch(&self.inotify, event.wd());
            }
        }
        opened
    }
}
