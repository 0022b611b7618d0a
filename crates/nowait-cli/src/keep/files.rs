//! The files of all given paths: where they are, and what was found when they were last looked at.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;

use nowait_page_cache::{FileRef, OpenError, PseudoDevices, examine};
use rustix::io::Errno;

use super::entry::{Entry, Look};
use super::report::Reports;
use super::root::{Changed, Context, Root};
use super::target::Target;
use super::watch::Watches;
use crate::name::plural;

/// The given paths, their files, and the watches of their directories.
pub struct Files {
    pub roots: Vec<Root>,
    pub watches: Watches,
    pub reports: Reports,
    pseudo: PseudoDevices,
    one_file_system: bool,
    /// Files have come or gone or have another size, so that the plan is to be made again.
    pub resized: bool,
    /// The file of which a part is planned, by device and inode number, and the planned bytes.
    pub part: Option<((u64, u64), u64)>,
}

impl Files {
    /// No paths yet.
    pub fn new(watches: Watches, reports: Reports, one_file_system: bool) -> Files {
        Files {
            roots: Vec::new(),
            watches,
            reports,
            pseudo: PseudoDevices::default(),
            one_file_system,
            resized: false,
            part: None,
        }
    }

    /// Replaces the list of paths. The files of paths that stay remain as they are.
    pub fn set_paths(&mut self, paths: Vec<PathBuf>) {
        self.watches.clear();
        let old = std::mem::take(&mut self.roots).into_iter();
        let mut old: HashMap<PathBuf, Root> = old.map(|root| (root.path.clone(), root)).collect();
        let root = |(number, path)| match old.remove(&path) {
            Some(known) => known.renumbered(number),
            None => Root::new(path, number),
        };
        self.roots = paths.into_iter().enumerate().map(root).collect();
    }

    /// All files in their order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let all = self.roots.iter().flat_map(Root::entries);
        all.map(|(_, _, entry)| entry)
    }

    /// A file.
    pub fn entry(&mut self, target: &Target) -> Option<&mut Entry> {
        let root = self.roots.get_mut(target.root)?;
        root.entry_mut(target)
    }

    /// A file, to be opened.
    pub fn file(&self, target: &Target) -> FileRef {
        self.roots[target.root].file(&target.directory, &target.name)
    }

    /// Opens the directories of some paths, because many files of them are to be opened.
    pub fn open<'a>(&mut self, targets: impl Iterator<Item = &'a Target>) {
        let numbers: HashSet<usize> = targets.map(|target| target.root).collect();
        for number in numbers {
            self.roots[number].reopen();
        }
    }

    /// Closes all directories, so that their filesystems can be unmounted.
    pub fn close(&mut self) {
        self.roots.iter_mut().for_each(Root::close);
    }

    /// Reads again which pseudo filesystems are mounted.
    pub fn renew(&mut self) {
        self.pseudo = PseudoDevices::of("self");
    }

    fn with_root<T>(
        &mut self,
        number: usize,
        act: impl FnOnce(&mut Root, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let root = self.roots.get_mut(number)?;
        let mut context = Context {
            watches: &mut self.watches,
            pseudo: &self.pseudo,
            reporter: &self.reports,
            one_file_system: self.one_file_system,
        };
        Some(act(root, &mut context))
    }

    /// Looks where a path leads, and lists its directories. Returns false if it cannot be kept.
    pub fn scan(&mut self, number: usize) -> bool {
        let scanned = self.with_root(number, |root, context| root.scan(context));
        scanned.unwrap_or(false)
    }

    /// Looks at all paths and files. Returns the number of paths that can be kept.
    pub fn look_at_all(&mut self) -> usize {
        self.renew();
        let good = (0..self.roots.len()).filter(|number| self.scan(*number));
        let good = good.count();
        let files = self.roots.iter().flat_map(|root| {
            let entries = root.entries();
            entries.map(|(directory, name, _)| root.file(directory, name))
        });
        let mut looks = self.looks(files).into_iter();
        for root in &mut self.roots {
            root.directories.for_each_file(|_, _, entry| {
                if let Some(look) = looks.next() {
                    entry.apply(look);
                    entry.tried = false;
                }
            });
        }
        self.resized = true;
        good
    }

    /// Looks at some files.
    pub fn examine(&mut self, targets: &[Target]) {
        self.open(targets.iter());
        let looks = self.looks(targets.iter().map(|target| self.file(target)));
        for (target, look) in targets.iter().zip(looks) {
            if let Some(entry) = self.entry(target) {
                self.resized |= entry.apply(look);
            }
        }
    }

    /// Looks at files, on several threads if they are many. The results are in the order of the files.
    fn looks(&self, mut files: impl Iterator<Item = FileRef>) -> Vec<Result<Look, OpenError>> {
        let mut looks = Vec::new();
        let part = self.part;
        let done: Result<(), Infallible> = examine(
            |each| files.try_for_each(each),
            FileRef::open,
            |file, stat| {
                let part = part.filter(|(id, _)| *id == (stat.st_dev, stat.st_ino));
                Look::at(&file, &stat, part.map_or(u64::MAX, |(_, planned)| planned))
            },
            |found, look| {
                if let Err(why) = &look {
                    found.failed(&self.reports, *why);
                }
                looks.push(look);
                Ok(())
            },
        );
        let Ok(()) = done;
        looks
    }

    /// Looks at names that have changed. Returns the files that are to be read or locked again.
    pub fn follow(&mut self, changed: HashSet<(i32, OsString)>) -> Vec<Target> {
        let mut names = Vec::new();
        let mut scans = HashSet::new();
        for (watch, name) in changed {
            scans.extend(self.watches.ways(watch, &name));
            let trees = self.watches.trees(watch);
            names.extend(trees.map(|(root, directory)| (root, directory, name.clone())));
        }
        if names.is_empty() && scans.is_empty() {
            return Vec::new();
        }
        self.renew();
        let mut found: Vec<Target> = Vec::new();
        for (number, directory, name) in names {
            let look = |root: &mut Root, context: &mut Context<'_>| match root
                .look(directory, &name, context)
            {
                Changed::Nothing => (false, Vec::new()),
                Changed::Gone => (true, Vec::new()),
                Changed::File(at) => (false, vec![Target::new(number, &at, &name)]),
                Changed::Tree(directory) => (false, root.targets_below(directory)),
            };
            if let Some((gone, targets)) = self.with_root(number, look) {
                self.resized |= gone;
                found.extend(targets);
            }
        }
        for number in scans {
            self.scan(number);
            self.resized = true;
            found.extend(self.roots[number].targets());
        }
        self.examine(&found);
        for target in &found {
            if let Some(entry) = self.entry(target) {
                entry.tried = false;
                // A copy-up of overlayfs makes it another file behind the same number.
                entry.lock = None;
            }
        }
        found
    }

    /// Says if there are directories without a watch.
    pub fn report_unwatched(&self) {
        let unwatched: u64 = self.roots.iter().map(Root::unwatched).sum();
        let Some(why) = self.watches.why.filter(|_| unwatched > 0) else {
            return;
        };
        let limit = match why {
            Errno::NOSPC => "fs.inotify.max_user_watches",
            Errno::MFILE => "fs.inotify.max_user_instances",
            _ => "inotify",
        };
        self.reports.say(format_args!(
            "some directories are not watched ({limit}: {why}); sweeps find the changes in them"
        ));
    }

    /// Says once for each path that its files are read in each sweep.
    pub fn report_unknown(&mut self) {
        for root in self.roots.iter_mut().filter(|root| !root.said_unknown) {
            let mut unknown = root.entries().filter_map(|(_, _, entry)| entry.unknown);
            let Some(why) = unknown.next() else { continue };
            let files = plural(1 + unknown.count() as u64, "file");
            let what = format_args!(
                "the residency of {files} is unknown ({why}); all is read in each sweep"
            );
            self.reports.say_of(&root.path, what);
            root.said_unknown = true;
        }
    }
}
