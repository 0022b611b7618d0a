//! The files that are read ahead next: which, in which order, and how many.
//!
//! A program that picks few files of a directory must not wait for reads of the others. So files are
//! read only if the program opens those of a directory in an order; see [`Sequence`]. The number of files that may be ahead
//! grows with it, in each directory that the program is in and in all others together. When the program has left a directory,
//! the files that were read and not used there are counted as wasted. Readahead ends if more were wasted than used.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::directory::Id;
use crate::found_files::FilesOfDirectory;
use crate::roots::Roots;
use crate::sequence::{Order, Sequence};

#[derive(Default)]
pub struct Queue {
    pub directories: HashMap<Id, FilesOfDirectory>,
    /// The directories with files to be read, in the order of reading.
    pub queue: VecDeque<Id>,
    /// The files that were found and not yet opened by the program.
    pub files: HashMap<Id, File>,
    /// The bytes that were read and not yet used.
    pub outstanding: u64,
    /// The number of files that were read and not yet used, in directories of which the program has
    /// opened no file.
    pub beyond: u64,
    /// The number of files that the program has opened.
    pub opened: u64,
    /// The number of names in [`FilesOfDirectory::opened_before`] of all directories.
    pub opened_before: usize,
    /// The number of files that were read before the program has opened them.
    pub used: u64,
    /// The number of files that were read, and not used when the program left their directories.
    pub wasted: u64,
    /// The directories of the files that the program has opened, with [`Queue::opened`] at that
    /// time. Those that it has left are removed.
    pub recent: VecDeque<(Id, u64)>,
    /// The user has named the tree, and inotify(7) follows the program there.
    pub is_named: bool,
    /// The number of files in a row that were cached.
    pub cached: u32,
    /// The last file that the program has opened: its directory, inode number and name.
    pub last: Option<(Id, u64, Arc<Path>)>,
    pub sequence: Sequence,
    /// The roots of the directories in `queue`, and of those that threads read.
    pub roots: Roots,
    pub threads: usize,
    /// The number of threads that wait.
    pub idle: usize,
    pub summary: Summary,
}

/// A file that was found and not yet opened by the program.
pub struct File {
    pub directory: Id,
    pub name: Arc<Path>,
    pub size: u64,
    /// The bytes that were read.
    pub read: u64,
}

/// The files that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of files.
    pub files: u64,
    /// Their bytes that were read.
    pub bytes: u64,
    /// The bytes of files that the program has opened.
    pub used: u64,
}

/// The number of bytes that are read from the beginning of a file. The kernel reads the rest ahead
/// while the program reads.
const MAX_BYTES: u64 = 512 << 10;
/// The number of files that the program opens before others are read.
pub const MIN_OPENED: u64 = 2;
/// The number of bytes that may be read ahead for each file that the program has opened. Little is
/// wasted if the program goes elsewhere.
const AHEAD_PER_OPEN: u64 = 4 << 20;
/// The number of files of other directories that the program opens before the files of a directory
/// are given up.
const GIVE_UP_AFTER: u64 = 1024;
/// The number of files of other directories that the program opens before it has left a directory.
pub const LEFT_AFTER: u64 = 64;
/// The number of files that may be wasted before readahead ends.
pub const MIN_WASTED: u64 = 32;
/// The number of files that a thread takes at a time.
const BATCH: u64 = 16;

/// The files that a thread has taken: the root and the path of their directory, and for each its
/// identity, its name and the bytes to be read.
pub type Taken = ((Arc<OwnedFd>, Arc<Path>), Vec<(Id, Arc<Path>, u64)>);

impl Queue {
    /// Moves a directory with unread files to the front of the queue.
    pub fn move_to_front(&mut self, directory: Id) {
        let queued = self
            .directories
            .get(&directory)
            .is_some_and(|found| found.is_queued);
        if queued
            && self.queue.front() != Some(&directory)
            && let Some(at) = self.queue.iter().position(|id| *id == directory)
        {
            self.queue.remove(at);
            self.queue.push_front(directory);
        }
    }

    /// Closes the roots of all directories: no more of their files are read.
    pub fn close_roots(&mut self) {
        self.queue.clear();
        self.roots.clear();
        for directory in self.directories.values_mut() {
            directory.close_root();
        }
    }

    /// Closes some roots for the program.
    pub fn let_go(&mut self, which: impl Fn(&OwnedFd) -> bool) {
        let roots = self.roots.remove(which);
        self.close(&roots);
    }

    /// Closes the roots in which the program has opened no file since then, and a walk has found none.
    pub fn let_go_unused(&mut self, since: Instant) {
        let roots = self.roots.remove_unused(since);
        self.close(&roots);
    }

    /// A walk has found files below this root. Others are closed if there are too many.
    pub fn uses(&mut self, root: &Arc<OwnedFd>) {
        self.roots.used(root);
        let roots = self.roots.remove_excess();
        self.close(&roots);
    }

    /// Closes roots. Forgets the unread files, so that a later walk may find them again.
    fn close(&mut self, roots: &[Arc<OwnedFd>]) {
        if roots.is_empty() {
            return;
        }
        let is_closed = |root: &Arc<OwnedFd>| roots.iter().any(|it| Arc::ptr_eq(it, root));
        let (directories, files) = (&mut self.directories, &mut self.files);
        // Only directories in the queue have a root.
        self.queue.retain(|id| {
            let Some(directory) = directories.get_mut(id) else {
                return false;
            };
            if !directory.root.as_ref().is_some_and(is_closed) {
                return true;
            }
            for (name, id) in directory.close_root() {
                // The others were opened by the program, or taken for another walk.
                if files.get(&id).is_some_and(|file| file.read == 0) {
                    files.remove(&id);
                    directory.names.remove(&name);
                }
            }
            false
        });
    }

    /// The maximum number of bytes that were read and not yet used.
    fn limit(&self, budget: u64) -> u64 {
        budget.min(self.opened.saturating_mul(AHEAD_PER_OPEN))
    }

    /// Removes a file, which the program has opened or will not open. `None` if it is not known.
    pub fn forget(&mut self, id: Id) -> Option<File> {
        let file = self.files.remove(&id)?;
        self.outstanding -= file.read;
        if let Some(directory) = self.directories.get_mut(&file.directory) {
            directory.names.remove(&file.name);
            if file.read > 0 {
                directory.ahead -= 1;
                self.beyond -= u64::from(directory.last_opened == 0);
            }
        }
        Some(file)
    }

    /// Returns true if a file was taken, and the program has not opened it since.
    pub fn is_ahead(&self, id: Id) -> bool {
        self.files.get(&id).is_some_and(|file| file.read > 0)
    }

    /// A file that was taken was cached already, perhaps because the program has opened it before
    /// the walk has found it.
    pub fn was_cached(&mut self, id: Id) {
        let Some(file) = self.take_back(id) else {
            return;
        };
        if let Some(directory) = self.directories.get_mut(&file.directory) {
            directory.names.insert(file.name.clone(), id);
        }
        self.files.insert(id, File { read: 0, ..file });
    }

    /// A file that was taken was not read. A later walk may find it again.
    pub fn was_not_read(&mut self, id: Id) {
        if !self.is_ahead(id) {
            // The program has opened it, and a walk may have found it again.
            return;
        }
        let Some(file) = self.take_back(id) else {
            return;
        };
        self.summary.files -= 1;
        self.summary.bytes -= file.read;
        if let Some(directory) = self.directories.get_mut(&file.directory) {
            directory.taken -= 1;
            directory.read.retain(|read| *read != id);
        }
    }

    /// Removes a file that was taken, which is then neither ahead of the program nor wasted.
    fn take_back(&mut self, id: Id) -> Option<File> {
        let file = self.forget(id)?;
        if let Some(directory) = self.directories.get_mut(&file.directory)
            && directory.wasted > 0
        {
            directory.wasted -= 1;
            self.wasted -= 1;
        }
        Some(file)
    }

    /// Records the step of the program to a file from the last one in the same directory.
    pub fn step(&mut self, inode: u64, file: &File) {
        if let Some((directory, last, name)) = &self.last
            && *directory == file.directory
        {
            let directory = self.directories.get(directory);
            let is_listed = directory.is_some_and(|it| it.position(inode).is_some());
            for order in [Order::Inode, Order::Name, Order::Listing] {
                if let Some(directory) = directory
                    && (is_listed || order != Order::Listing)
                {
                    let is_forwards =
                        directory.is_before(order, (name, *last), (&file.name, inode));
                    self.sequence.steps[order as usize] += if is_forwards { 1 } else { -1 };
                }
            }
        }
        self.last = Some((file.directory, inode, file.name.clone()));
    }

    /// The program has opened a file of a directory.
    pub fn come(&mut self, id: Id) {
        let Some(directory) = self.directories.get_mut(&id) else {
            return;
        };
        if directory.last_opened == 0 {
            self.beyond -= directory.ahead;
        }
        self.wasted -= std::mem::take(&mut directory.wasted);
        directory.last_opened = self.opened;
        self.recent.push_back((id, self.opened));
        // The root is closed when the program has opened all files.
        while let Some((_, id)) = directory.unread.last()
            && !self.files.contains_key(id)
        {
            directory.unread.pop();
        }
        if directory.unread.is_empty() {
            directory.root = None;
        }
        // The walk has found files elsewhere, too, to which the program will come.
        if let Some(root) = directory.walk.upgrade()
            && self.roots.contains(&root)
        {
            self.roots.used(&root);
        }
    }

    /// Looks for directories that the program has left. It is in a directory that is above `here`,
    /// too: tar(1) and grep(1) go on there.
    pub fn leave(&mut self, here: Id) {
        let here = self.directories.get(&here).map(|it| it.path.clone());
        while let Some(&(id, opened)) = self.recent.front()
            && opened + LEFT_AFTER <= self.opened
        {
            self.recent.pop_front();
            let Some(directory) = self.directories.get_mut(&id) else {
                continue;
            };
            if directory.last_opened != opened {
                continue;
            }
            if here
                .as_ref()
                .is_some_and(|it| it.starts_with(&directory.path))
            {
                directory.last_opened = self.opened;
                self.recent.push_back((id, self.opened));
            } else {
                directory.wasted = directory.ahead;
                self.wasted += directory.wasted;
            }
        }
    }

    /// Returns true if the program opens few of the files that are read.
    pub fn wastes(&self) -> bool {
        !self.is_named && self.wasted > MIN_WASTED + self.used
    }

    /// Returns the number of files of a directory that may be read now, or 0 if that is less than
    /// an eighth of the number that may be ahead. No thread is woken for less.
    fn room(&self, directory: &FilesOfDirectory) -> u64 {
        let most = self.sequence.ahead();
        let ahead = match directory.last_opened {
            _ if self.is_named => return u64::MAX,
            0 => self.beyond,
            _ if directory.wasted > 0 => return 0,
            _ => directory.ahead,
        };
        Some(most.saturating_sub(ahead))
            .filter(|room| *room >= most / 8)
            .unwrap_or(0)
    }

    /// The next directory to be read: its position in the queue, and the number of its files that
    /// may be read. The directories to which the program has come are in front.
    fn next_directory(&self) -> Option<(usize, u64)> {
        for (at, id) in self.queue.iter().enumerate() {
            let directory = self.directories.get(id)?;
            match self.room(directory) {
                0 if directory.last_opened == 0 => return None,
                0 => {}
                room => return Some((at, room)),
            }
        }
        None
    }

    /// Returns true if there are files to be read, and at least an eighth of the limit may be read.
    /// No thread is woken for less.
    pub fn has_room(&self, budget: u64) -> bool {
        let limit = self.limit(budget);
        self.opened >= MIN_OPENED
            && self.outstanding <= limit - limit / 8
            && self.next_directory().is_some()
    }

    /// Takes the next files to be read. `None` if there are none, or if the limit is reached.
    pub fn take(&mut self, budget: u64) -> Option<Taken> {
        let limit = self.limit(budget);
        if self.outstanding >= limit {
            self.give_up();
        }
        if self.opened < MIN_OPENED || self.outstanding >= limit {
            return None;
        }
        loop {
            let (at, room) = self.next_directory()?;
            let here = *self.queue.get(at)?;
            let directory = self.directories.get_mut(&here)?;
            let order = self.sequence.best().0;
            directory.sort(order);
            let mut taken = Vec::new();
            while taken.len() < room.min(BATCH) as usize
                && self.outstanding < limit
                && let Some((name, id)) = directory.unread.pop()
            {
                // The program has opened the file already, or it was taken before: two walks may have found it. A walk that has
                // found it later in another directory will read it there.
                let is_here = |file: &&mut File| file.read == 0 && file.directory == here;
                let Some(file) = self.files.get_mut(&id).filter(is_here) else {
                    continue;
                };
                if let Some(last) = self.last.as_ref().filter(|it| it.0 == file.directory)
                    && !self.is_named
                    && directory.is_before(order, (&name, id.1), (&last.2, last.1))
                {
                    // The program has gone past it, perhaps before the walk has found it.
                    continue;
                }
                file.read = file.size.min(MAX_BYTES);
                self.outstanding += file.read;
                self.summary.files += 1;
                self.summary.bytes += file.read;
                directory.read.push(id);
                directory.taken += 1;
                directory.ahead += 1;
                self.beyond += u64::from(directory.last_opened == 0);
                taken.push((id, name, file.read));
            }
            let (root, path) = (directory.root.clone(), directory.path.clone());
            if directory.unread.is_empty() {
                directory.is_queued = false;
                directory.root = None;
                self.queue.remove(at);
            }
            if !taken.is_empty() {
                return Some(((root?, path), taken));
            }
        }
    }

    /// Gives up the files of directories that the program has left.
    fn give_up(&mut self) {
        let opened = self.opened;
        let given_up = |it: &&mut FilesOfDirectory| {
            it.last_opened > 0 && opened - it.last_opened > GIVE_UP_AFTER
        };
        let directories = self.directories.values_mut().filter(given_up);
        let files: Vec<Id> = directories.flat_map(|it| it.read.drain(..)).collect();
        for file in files {
            self.forget(file);
        }
    }

    /// Returns true if the budget is full of files that the program does not open, while it opens
    /// others.
    pub fn is_stuck(&self, budget: u64) -> bool {
        self.outstanding >= budget
            && self.summary.used < self.summary.bytes / 4
            && self.opened > 4 * GIVE_UP_AFTER
    }
}
