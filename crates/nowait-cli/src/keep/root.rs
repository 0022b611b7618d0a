//! One given path: the file, or the directories and files below, and the watches that report their
//! changes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait::walk::{self, Opener};
use nowait_page_cache::{
    FileRef, Given, Kinds, OpenError, PseudoDevices, Reporter, TreeRoot, given,
};
use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::directory::{Directory, Names, id};
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
    /// The directories in the order of their paths. A given file has one, that of its parent.
    pub directories: BTreeMap<Arc<Path>, Box<Directory>>,
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
            directories: BTreeMap::new(),
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
                let parent = self.path.parent().unwrap_or(Path::new(""));
                let parent: Arc<Path> = parent.into();
                let name = self.path.file_name().unwrap_or_default().to_owned();
                if self.tree.take().is_some() || !self.directories.contains_key(&parent) {
                    self.clear(context.watches);
                    let mut directory = Box::<Directory>::default();
                    directory.files.insert(name, Box::default());
                    self.directories.insert(parent, directory);
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
                let path: Arc<Path> = self.path.as_path().into();
                self.list(path.clone(), false, context);
                self.directories.contains_key(&path)
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
        for (path, directory) in std::mem::take(&mut self.directories) {
            self.unwatch(&path, &directory, watches);
        }
    }

    fn unwatch(&self, path: &Path, directory: &Directory, watches: &mut Watches) {
        if let Some(watch) = directory.watch {
            watches.remove(watch, Purpose::Tree(self.number, path.to_owned()));
        }
    }

    /// A directory and those below it.
    pub fn below<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'a Arc<Path>, &'a Directory)> {
        let rest = (Bound::Included(path), Bound::Unbounded);
        let below = self.directories.range::<Path, _>(rest);
        let below = below.take_while(move |(below, _)| below.starts_with(path));
        below.map(|(path, directory)| (path, &**directory))
    }

    /// Lets a directory and everything below it go.
    fn remove(&mut self, path: &Path, watches: &mut Watches) {
        let gone: Vec<Arc<Path>> = self.below(path).map(|(path, _)| path.clone()).collect();
        for path in gone {
            if let Some(directory) = self.directories.remove(&path) {
                self.unwatch(&path, &directory, watches);
            }
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
    fn list(&mut self, path: Arc<Path>, new: bool, context: &mut Context<'_>) {
        let Ok(root) = self.root() else { return };
        let root_device = rustix::fs::fstat(&*root).map_or(0, |stat| stat.st_dev);
        let mut rest = vec![path];
        while let Some(path) = rest.pop() {
            let is_root = *path == *self.path;
            let result = self.list_one(&root, &path, new, root_device, context);
            match result {
                Ok(below) => rest.extend(below.iter().map(|name| path.join(name).into())),
                Err(why) if OpenError::Os(why).is_shortage() => {
                    context.reporter.failure(&path, Some(why), &why);
                }
                Err(why) => {
                    self.remove(&path, context.watches);
                    let vanished = matches!(why, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
                    if is_root || !vanished {
                        context.reporter.failure(&path, Some(why), &why);
                    }
                }
            }
        }
    }

    /// Lists one directory. Returns the names of the directories in it.
    fn list_one(
        &mut self,
        root: &Opener,
        path: &Arc<Path>,
        new: bool,
        root_device: u64,
        context: &mut Context<'_>,
    ) -> Result<Vec<OsString>, Errno> {
        let relative = or_dot(path.strip_prefix(&self.path).unwrap_or(path));
        if let Some(known) = self.directories.get(path).filter(|_| !new)
            && known.watch.is_none_or(|watch| context.watches.has(watch))
            && let Ok(stat) = rustix::fs::statat(root, relative, AtFlags::SYMLINK_NOFOLLOW)
            && known.is_unchanged(&stat)
        {
            return Ok(known.below.clone());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = open(root, relative, flags)?;
        let stat = rustix::fs::fstat(&opened)?;
        let elsewhere = stat.st_dev != root_device;
        let skipped = context.one_file_system || context.pseudo.kind(stat.st_dev).is_some();
        if (elsewhere && skipped) || self.is_above(path, id(&stat)) {
            self.remove(path, context.watches);
            return Ok(Vec::new());
        }
        // The watch comes first, so that no change is missed. The path may lead to another directory
        // by now.
        let purpose = Purpose::Tree(self.number, path.to_path_buf());
        let watch = context.watches.add_open(&opened, purpose.clone());
        let names = Names::of(opened)?;
        let below = names.below.clone();
        let mut directory = self.directories.remove(path).unwrap_or_default();
        if let Some(old) = directory.watch.filter(|old| Some(*old) != watch) {
            context.watches.remove(old, purpose);
        }
        let before = std::mem::take(&mut directory.below);
        directory.listed(&stat, names);
        directory.watch = watch;
        self.directories.insert(path.clone(), directory);
        for name in before {
            if below.binary_search(&name).is_err() {
                self.remove(&path.join(name), context.watches);
            }
        }
        Ok(below)
    }

    /// Returns true if a directory above a path is this one, by a bind mount.
    fn is_above(&self, path: &Path, id: (u64, u64)) -> bool {
        let mut above = path.ancestors().skip(1);
        above.any(|above| self.directories.get(above).is_some_and(|one| one.id == id))
    }

    /// The type of a file of the tree.
    fn kind(&mut self, path: &Path) -> Result<FileType, Errno> {
        let root = self.root()?;
        let relative = path.strip_prefix(&self.path).unwrap_or(path);
        let stat = rustix::fs::fstat(open(&root, relative, OFlags::PATH | OFlags::CLOEXEC)?)?;
        Ok(FileType::from_raw_mode(stat.st_mode))
    }

    /// Looks at a name that has changed in a directory of the tree. Returns the paths of the
    /// directories whose files are to be examined, or of the file.
    pub fn look(&mut self, directory: &Path, name: &OsStr, context: &mut Context<'_>) -> Changed {
        let path = directory.join(name);
        let kind = self.kind(&path);
        if kind.is_err_and(|why| OpenError::Os(why).is_shortage()) {
            return Changed::Nothing;
        }
        let Some(parent) = self.directories.get_mut(directory) else {
            return Changed::Nothing;
        };
        let is_directory = kind == Ok(FileType::Directory);
        let is_file = kind == Ok(FileType::RegularFile);
        let mut gone = false;
        if !is_file {
            gone |= parent.files.remove(name).is_some();
        }
        match parent.below.binary_search_by(|below| (**below).cmp(name)) {
            Ok(at) if !is_directory => {
                parent.below.remove(at);
                self.remove(&path, context.watches);
                gone = true;
            }
            Err(at) if is_directory => parent.below.insert(at, name.to_owned()),
            _ => {}
        }
        if is_directory {
            self.list(path.clone().into(), true, context);
            return Changed::Tree(path);
        }
        if is_file {
            if let Some(parent) = self.directories.get_mut(directory) {
                parent.files.entry(name.to_owned()).or_default().tried = false;
            }
            return Changed::File;
        }
        match gone {
            true => Changed::Gone,
            false => Changed::Nothing,
        }
    }

    /// Counts bytes that were read. `again`: they had been resident before.
    pub fn count(&mut self, bytes: u64, again: bool) {
        self.read += bytes;
        self.read_again += if again { bytes } else { 0 };
    }

    /// A file of the path, to be opened.
    pub fn file(&self, directory: &Path, name: &OsStr) -> FileRef {
        match &self.tree {
            Some(tree) => FileRef::in_tree(tree, directory.join(name), 0),
            None => FileRef::given(self.path.clone(), 0, FileType::RegularFile),
        }
    }

    /// All files in their order.
    pub fn entries(&self) -> impl Iterator<Item = (&Arc<Path>, &OsString, &Entry)> {
        self.directories.iter().flat_map(|(path, directory)| {
            let files = directory.files.iter();
            files.map(move |(name, entry)| (path, name, &**entry))
        })
    }

    /// The files that follow a file in their order; all files without one.
    pub fn targets_after<'a>(
        &'a self,
        after: Option<&'a (Arc<Path>, OsString)>,
    ) -> impl Iterator<Item = Target> {
        let first = match after {
            Some((path, _)) => Bound::Included(&**path),
            None => Bound::Unbounded,
        };
        let directories = self.directories.range::<Path, _>((first, Bound::Unbounded));
        directories.flat_map(move |(path, directory)| {
            let first = match after {
                Some((last, name)) if last == path => Bound::Excluded(&**name),
                _ => Bound::Unbounded,
            };
            let files = directory.files.range::<OsStr, _>((first, Bound::Unbounded));
            files.map(move |(name, _)| Target::new(self.number, path, name))
        })
    }

    /// The files of a directory and below it.
    pub fn targets_below(&self, path: &Path) -> Vec<Target> {
        let directories = self.below(path);
        let targets = directories.flat_map(|(directory, known)| {
            let names = known.files.keys();
            names.map(|name| Target::new(self.number, directory, name))
        });
        targets.collect()
    }

    /// All files in their order, to be changed.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (&Arc<Path>, &OsString, &mut Entry)> {
        self.directories.iter_mut().flat_map(|(path, directory)| {
            let files = directory.files.iter_mut();
            files.map(move |(name, entry)| (path, name, &mut **entry))
        })
    }

    /// One file.
    pub fn entry_mut(&mut self, directory: &Path, name: &OsStr) -> Option<&mut Entry> {
        let directory = self.directories.get_mut(directory)?;
        directory.files.get_mut(name).map(|entry| &mut **entry)
    }
}

/// The kind of a change of a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Changed {
    /// Nothing that is kept.
    Nothing,
    /// Files are gone.
    Gone,
    /// A regular file is there.
    File,
    /// A directory is there.
    Tree(PathBuf),
}

/// Opens a file below a root. No symbolic link is followed.
fn open(root: impl AsFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    walk::open_beneath(root, relative, flags)
        .map_err(|e| e.errno().map_or(Errno::IO, Errno::from_raw_os_error))
}

fn or_dot(relative: &Path) -> &Path {
    match relative.as_os_str().is_empty() {
        true => Path::new("."),
        false => relative,
    }
}
