//! One given path: the file, or the directories and files below, and the watches that report their
//! changes.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use nowait::scan::Dir;
use nowait::walk::Opener;
use nowait_page_cache::{
    FileRef, Given, Kinds, OpenError, PseudoDevices, Reporter, TreeRoot, given,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::directories::{Directories, Place};
use super::directory::{Directory, Location, Names, Number};
use super::entry::Entry;
use super::target::Target;
use super::watch::{Purpose, Watches, way};

/// The means of a listing.
pub struct Context<'a> {
    pub watches: &'a mut Watches,
    pub pseudo: &'a PseudoDevices,
    pub reporter: &'a dyn Reporter,
    pub one_file_system: bool,
}

/// A given path.
pub struct Root {
    pub path: PathBuf,
    number: usize,
    /// The directories. A given file has one, that of its parent.
    pub directories: Directories,
    /// The tree, if the path is a directory; and the open directory while files are examined.
    tree: Option<Arc<TreeRoot>>,
    open: Option<Arc<Opener>>,
    /// The watches of the directories that the path leads through, and how many of these have none.
    way: Vec<(i32, Purpose)>,
    way_unwatched: u64,
    /// The bytes that were read, and that part of them which had been resident before.
    pub read: u64,
    pub read_again: u64,
    /// The last message about files that are not locked.
    pub said: String,
    /// A message about files of unknown residency was printed.
    pub said_unknown: bool,
}

impl Root {
    /// A path that was not looked at yet.
    pub fn new(path: PathBuf, number: usize) -> Root {
        Root {
            path,
            number,
            directories: Directories::default(),
            tree: None,
            open: None,
            way: Vec::new(),
            way_unwatched: 0,
            read: 0,
            read_again: 0,
            said: String::new(),
            said_unknown: false,
        }
    }

    /// The same path at another place of the list. Its watches have ended.
    pub fn renumbered(mut self, number: usize) -> Root {
        self.number = number;
        self.way.clear();
        self.directories
            .values_mut()
            .for_each(|directory| directory.unwatched());
        self
    }

    /// The number of directories without a watch.
    pub fn unwatched(&self) -> u64 {
        let listed = self.directories.values().filter(|_| self.tree.is_some());
        let unwatched = listed.filter(|directory| directory.watch.is_none());
        self.way_unwatched + unwatched.count() as u64
    }

    /// Looks where the path leads, and lists the directories that have changed. Returns false if the
    /// path cannot be kept.
    pub fn scan(&mut self, context: &mut Context<'_>) -> bool {
        self.watch_way(context.watches);
        self.open = None;
        match self.find(context) {
            None => {
                self.clear(context.watches);
                false
            }
            Some(Given::File(_)) => {
                let name = self.path.file_name().unwrap_or_default().to_owned();
                if self.tree.take().is_some() || self.directories.is_empty() {
                    self.clear(context.watches);
                    let mut directory = Box::<Directory>::default();
                    directory.files.insert(name, Box::default());
                    self.directories.add(&Place::Top, directory);
                }
                true
            }
            Some(Given::Directory) => {
                match TreeRoot::open(&self.path) {
                    Ok((tree, open)) => {
                        if self.tree.is_none() {
                            self.clear(context.watches);
                        }
                        self.tree = Some(tree);
                        self.open = Some(open);
                    }
                    Err(why) => {
                        context.reporter.failure(&self.path, Some(why), &why);
                        if !OpenError::Os(why).is_shortage() {
                            self.clear(context.watches);
                        }
                        return !self.directories.is_empty();
                    }
                }
                self.list(Place::Top, false, context);
                !self.directories.is_empty()
            }
        }
    }

    /// The file or directory at the path. Failures are reported.
    fn find(&self, context: &Context<'_>) -> Option<Given> {
        let found = given(&self.path, Kinds::Regular, context.reporter)?;
        let stat = rustix::fs::stat(&self.path).ok()?;
        if let Some(kind) = context.pseudo.kind(stat.st_dev) {
            let why = format_args!("is on a pseudo filesystem ({kind}), which has no page cache");
            context
                .reporter
                .failure(&self.path, Some(Errno::INVAL), &why);
            return None;
        }
        Some(found)
    }

    /// Watches the names that the path leads through.
    fn watch_way(&mut self, watches: &mut Watches) {
        let before = std::mem::take(&mut self.way);
        self.way_unwatched = 0;
        for (directory, name) in way(&self.path) {
            let purpose = Purpose::Way(self.number, name);
            match watches.add(&directory, purpose.clone()) {
                Some(watch) => self.way.push((watch, purpose)),
                None => self.way_unwatched += 1,
            }
        }
        for (watch, purpose) in before {
            if !self.way.contains(&(watch, purpose.clone())) {
                watches.remove(watch, purpose);
            }
        }
    }

    /// Lets everything go.
    fn clear(&mut self, watches: &mut Watches) {
        self.tree = None;
        for directory in self.directories.clear() {
            unwatch(self.number, &directory, watches);
        }
    }

    /// Lets a directory and everything below it go.
    fn remove(&mut self, number: Number, watches: &mut Watches) {
        for directory in self.directories.remove(number) {
            unwatch(self.number, &directory, watches);
        }
    }

    /// The open root directory.
    fn root(&mut self) -> Result<Arc<Opener>, Errno> {
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let (tree, open) = TreeRoot::open(&self.path)?;
        self.tree = Some(tree);
        self.open = Some(open.clone());
        Ok(open)
    }

    /// Opens the root directory, because many files of it are to be opened.
    pub fn reopen(&mut self) {
        if self.tree.is_some() {
            // If it fails, opening the files does, too.
            let _ = self.root();
        }
    }

    /// Closes the root directory, so that its filesystem can be unmounted.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// Lists a directory and those below it. Directories whose modification time is the same are not
    /// listed again, unless they are `new`.
    fn list(&mut self, first: Place, new: bool, context: &mut Context<'_>) {
        let Ok(root) = self.root() else { return };
        let root_device = rustix::fs::fstat(&*root).map_or(0, |stat| stat.st_dev);
        let mut rest = vec![first];
        while let Some(place) = rest.pop() {
            match self.list_one(&root, &place, new, root_device, context) {
                Ok(Some(number)) => rest.extend(self.directories.places_in(number)),
                Ok(None) => {}
                Err(why) if OpenError::Os(why).is_shortage() => {
                    context
                        .reporter
                        .failure(&self.path_of(&place), Some(why), &why);
                }
                Err(why) => {
                    let vanished = matches!(why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
                    if place == Place::Top || !vanished {
                        context
                            .reporter
                            .failure(&self.path_of(&place), Some(why), &why);
                    }
                    if let Some(number) = self.directories.at(&place) {
                        self.remove(number, context.watches);
                    }
                }
            }
        }
    }

    /// Lists one directory. Returns its number; `None` if it is not entered.
    fn list_one(
        &mut self,
        root: &Opener,
        place: &Place,
        new: bool,
        root_device: u64,
        context: &mut Context<'_>,
    ) -> Result<Option<Number>, Errno> {
        let mut known = self.directories.at(place);
        if let Some(number) = known.filter(|_| !new)
            && self.is_unchanged(root, place, number, context.watches)
        {
            return Ok(known);
        }
        let (dir, opened) = self.enter(root, place)?;
        let stat = rustix::fs::fstat(&opened)?;
        let elsewhere = stat.st_dev != root_device;
        let skipped = context.one_file_system || context.pseudo.kind(stat.st_dev).is_some();
        // By a bind mount, a directory above may be this one.
        let is_above = dir.parent().is_some_and(|above| above.is_within(dir.id()));
        let is_known = known.is_some_and(|number| self.is_dir(number, &dir));
        if let Some(number) = known.take_if(|_| (elsewhere && skipped) || is_above || !is_known) {
            self.remove(number, context.watches);
        }
        if (elsewhere && skipped) || is_above {
            return Ok(None);
        }
        let add = || {
            let mut directory = Box::<Directory>::default();
            directory.location.dir = Some(dir);
            self.directories.add(place, directory)
        };
        let Some(number) = known.or_else(add) else {
            return Ok(None);
        };
        // The watch comes first, so that no change is missed. The path may lead to another directory
        // by now.
        let purpose = Purpose::Tree(self.number, number);
        let watch = context.watches.add_open(&opened, purpose.clone());
        let Some(directory) = self.directories.get_mut(number) else {
            return Ok(None);
        };
        let old = std::mem::replace(&mut directory.watch, watch);
        if let Some(old) = old.filter(|old| Some(*old) != watch) {
            context.watches.remove(old, purpose);
        }
        for gone in directory.listed(&stat, Names::of(&opened)?) {
            self.remove(gone, context.watches);
        }
        Ok(Some(number))
    }

    /// Returns true if a directory is the same as when it was listed, and is still watched.
    fn is_unchanged(
        &self,
        root: &Opener,
        place: &Place,
        number: Number,
        watches: &Watches,
    ) -> bool {
        let Some(directory) = self.directories.get(number) else {
            return false;
        };
        let stat = match place {
            Place::Top => rustix::fs::fstat(root),
            Place::In(parent, name) => self.dir(*parent).and_then(|parent| {
                let parent = root.open_dir(parent).map_err(errno)?;
                rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
            }),
        };
        directory.watch.is_none_or(|watch| watches.has(watch))
            && stat.is_ok_and(|stat| directory.is_unchanged(&stat))
    }

    /// Opens the directory at a place for reading.
    fn enter(&self, root: &Opener, place: &Place) -> Result<(Arc<Dir>, Box<dyn AsFd>), Errno> {
        let known = self.directories.at(place);
        let known = known.and_then(|number| self.dir(number).ok());
        match place {
            Place::Top => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let opened = rustix::fs::openat(root, ".", flags, Mode::empty())?;
                let dir = root.root_dir(&self.path);
                let known = known.filter(|known| known.id() == dir.id());
                Ok((known.cloned().unwrap_or(dir), Box::new(opened)))
            }
            Place::In(parent, name) => {
                let opened = root.enter(self.dir(*parent)?, name, known).map_err(errno)?;
                Ok((opened.dir().clone(), Box::new(opened)))
            }
        }
    }

    fn is_dir(&self, number: Number, dir: &Arc<Dir>) -> bool {
        self.dir(number).is_ok_and(|known| Arc::ptr_eq(known, dir))
    }

    /// The directory with a number, as files are opened in it.
    fn dir(&self, number: Number) -> Result<&Arc<Dir>, Errno> {
        let directory = self.directories.get(number);
        let dir = directory.and_then(|directory| directory.location.dir.as_ref());
        dir.ok_or(Errno::NOENT)
    }

    /// The path of a directory for messages.
    fn path_of(&self, place: &Place) -> PathBuf {
        match place {
            Place::Top => self.path.clone(),
            Place::In(parent, name) => match self.dir(*parent) {
                Ok(parent) => parent.path().join(name),
                Err(_) => name.into(),
            },
        }
    }

    /// The type of a file of the tree.
    fn kind(&mut self, directory: Number, name: &OsStr) -> Result<FileType, Errno> {
        let root = self.root()?;
        let dir = self.dir(directory)?;
        let opened = root.open(dir, name, OFlags::PATH).map_err(errno)?;
        let stat = rustix::fs::fstat(opened)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// Looks at a name that has changed in a directory of the tree. Returns the directory whose files
    /// are to be examined, or that of the file.
    pub fn look(&mut self, directory: Number, name: &OsStr, context: &mut Context<'_>) -> Changed {
        let kind = self.kind(directory, name);
        if kind.is_err_and(|why| OpenError::Os(why).is_shortage()) {
            return Changed::Nothing;
        }
        let Some(parent) = self.directories.get_mut(directory) else {
            return Changed::Nothing;
        };
        let is_directory = kind == Ok(FileType::Directory);
        let is_file = kind == Ok(FileType::RegularFile);
        let mut gone = false;
        if is_file {
            parent.files.entry(name.to_owned()).or_default().tried = false;
        } else {
            gone |= parent.files.remove(name).is_some();
        }
        let location = parent.location.clone();
        if !is_directory && let Ok(at) = parent.find(name) {
            if let Some(number) = parent.below[at].number {
                self.remove(number, context.watches);
            }
            if let Some(parent) = self.directories.get_mut(directory) {
                parent.below.remove(at);
            }
            gone = true;
        }
        if is_directory {
            let place = Place::In(directory, name.to_owned());
            self.list(place.clone(), true, context);
            return match self.directories.at(&place) {
                Some(number) => Changed::Tree(number),
                None => Changed::Nothing,
            };
        }
        match (is_file, gone) {
            (true, _) => Changed::File(location),
            (false, true) => Changed::Gone,
            (false, false) => Changed::Nothing,
        }
    }

    /// Counts bytes that were read. `again`: they had been resident before.
    pub fn count(&mut self, bytes: u64, again: bool) {
        self.read += bytes;
        self.read_again += if again { bytes } else { 0 };
    }

    /// A file of the path, to be opened.
    pub fn file(&self, directory: &Location, name: &OsStr) -> FileRef {
        match (&self.tree, &directory.dir) {
            (Some(tree), Some(dir)) => FileRef::in_tree(tree, dir, name, 0),
            _ => FileRef::given(self.path.clone(), 0, FileType::RegularFile),
        }
    }

    /// All files in their order.
    pub fn entries(&self) -> impl Iterator<Item = (&Location, &OsString, &Entry)> {
        self.directories.in_order().flat_map(|directory| {
            let files = directory.files.iter();
            files.map(|(name, entry)| (&directory.location, name, &**entry))
        })
    }

    /// All files in their order.
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        let all = self.entries();
        all.map(|(directory, name, _)| Target::new(self.number, directory, name))
    }

    /// The files that follow a file in their order.
    pub fn targets_after<'a>(&'a self, after: &'a Target) -> impl Iterator<Item = Target> {
        let files = self.directories.files_after(&after.directory, &after.name);
        files.map(|(directory, name)| Target::new(self.number, directory, name))
    }

    /// The files of a directory and below it.
    pub fn targets_below(&self, directory: Number) -> Vec<Target> {
        let targets = self.directories.below(directory).flat_map(|directory| {
            let names = directory.files.keys();
            names.map(|name| Target::new(self.number, &directory.location, name))
        });
        targets.collect()
    }

    /// One file.
    pub fn entry_mut(&mut self, target: &Target) -> Option<&mut Entry> {
        let directory = self.directories.get_mut(target.directory.number)?;
        directory
            .files
            .get_mut(&target.name)
            .map(|entry| &mut **entry)
    }
}

/// The kind of a change of a name.
#[derive(Debug)]
pub enum Changed {
    /// Nothing that is kept.
    Nothing,
    /// Files are gone.
    Gone,
    /// A regular file is in this directory.
    File(Location),
    /// A directory is there.
    Tree(Number),
}

fn unwatch(number: usize, directory: &Directory, watches: &mut Watches) {
    if let Some(watch) = directory.watch {
        watches.remove(watch, Purpose::Tree(number, directory.location.number));
    }
}

fn errno(error: nowait::Error) -> Errno {
    error.errno().map_or(Errno::IO, Errno::from_raw_os_error)
}
