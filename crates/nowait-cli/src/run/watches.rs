//! The directories that a program opens, as inotify(7) tells.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nowait::walk::Found;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::id::Id;

/// Watches of the directories of one tree.
pub struct Watches {
    root: PathBuf,
    inotify: OwnedFd,
    ids: HashMap<i32, Id>,
    seen: HashSet<Id>,
}

impl Watches {
    /// Watches nothing yet. `root` is the absolute path of the tree.
    pub fn new(root: PathBuf) -> io::Result<Watches> {
        Ok(Watches {
            root,
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            ids: HashMap::new(),
            seen: HashSet::new(),
        })
    }

    /// Watches a directory that the walk has read. The walk itself has opened it before, so the next to open it is the program.
    pub fn add(&mut self, found: &Found) {
        let id = found.place().id();
        if !self.seen.insert(id) {
            return;
        }
        let path = self.root.join(&**found.place().path());
        let flags = WatchFlags::OPEN | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        // Beyond the limit of watches (fs.inotify.max_user_watches) the walk sees less of the program, and waits earlier.
        if let Ok(watch) = inotify::add_watch(&self.inotify, path, flags) {
            self.ids.insert(watch, id);
        }
    }

    /// The directories that were opened since the last call.
    pub fn opened(&mut self) -> Vec<Id> {
        let mut buf = [const { MaybeUninit::uninit() }; 16 << 10];
        let mut events = inotify::Reader::new(&self.inotify, &mut buf);
        let mut opened = Vec::new();
        while let Ok(event) = events.next() {
            // An event with a name is that of a file in the directory.
            if event.file_name().is_none() && event.events().contains(ReadFlags::OPEN) {
                opened.extend(self.ids.remove(&event.wd()).map(|id| (event.wd(), id)));
            }
        }
        for (watch, _) in &opened {
            let _ = inotify::remove_watch(&self.inotify, *watch);
        }
        opened.into_iter().map(|(_, id)| id).collect()
    }
}
