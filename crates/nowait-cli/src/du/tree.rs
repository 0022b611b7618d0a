//! The directories of a tree whose totals are not complete.
//!
//! ```text
//!  entries of a directory ─► its record: a sum, and its subdirectories without a record
//!  its `Dir` has no owner left ─► complete: printed, and added to its parent
//! ```
//! A walk returns batches of several directories in turns and does not report when a directory is
//! complete. The walk holds a directory's [`Dir`] as long as entries of the directory or below it
//! are to come. When it has no owner left, all entries were returned. Memory therefore holds
//! little more than the walk itself does.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::fence;
use std::sync::{Arc, Weak};

use nowait::scan::Dir;

use super::usage::Usage;

/// The number of records below which complete directories are not searched for. In a tree with
/// fewer directories, all are printed at the end, sorted.
const FEW: usize = 4096;

/// The directories that are not complete.
pub struct Tree {
    root: PathBuf,
    /// The usage of the root directory alone.
    usage: Usage,
    /// The depth of the deepest shown directories. Entries below are added to these directories.
    depth: usize,
    records: HashMap<Key, Record>,
    /// Directories that were counted in another tree.
    skipped: HashSet<PathBuf>,
    /// The number of records from which complete directories are searched for.
    many: usize,
}

/// The address of a directory's [`Dir`]. It is not reused as long as the record holds a `Weak`.
type Key = *const Dir;

/// A directory of which entries were returned.
struct Record {
    dir: Weak<Dir>,
    path: PathBuf,
    depth: usize,
    above: Option<Key>,
    usage: Usage,
    /// The names of subdirectories without a record, and the usage of each alone.
    below: HashMap<OsString, Usage>,
}

/// A complete directory.
pub struct Over {
    pub path: PathBuf,
    /// The total of the directory and everything below it.
    pub usage: Usage,
}

/// Adds the entries of one directory to the record that counts them.
pub struct Sum<'a> {
    record: &'a mut Record,
    skipped: &'a mut HashSet<PathBuf>,
    dir: &'a Dir,
    depth: usize,
}

impl Tree {
    /// The tree of a root directory. `usage` is that of the root directory alone.
    pub fn new(root: &Path, usage: Usage, depth: usize) -> Tree {
        Tree {
            root: root.to_owned(),
            usage,
            depth,
            records: HashMap::new(),
            skipped: HashSet::new(),
            many: FEW,
        }
    }

    /// The sum for the entries of a directory; `None` if the directory is not to be counted.
    pub fn directory<'a>(&'a mut self, dir: &'a Arc<Dir>) -> Option<Sum<'a>> {
        if !self.skipped.is_empty() && self.is_skipped(dir) {
            return None;
        }
        let mut shown = dir;
        while shown.depth() > self.depth {
            shown = shown.parent()?;
        }
        self.begin(shown);
        Some(Sum {
            record: self.records.get_mut(&Arc::as_ptr(shown))?,
            skipped: &mut self.skipped,
            dir,
            depth: self.depth,
        })
    }

    fn is_skipped(&self, dir: &Arc<Dir>) -> bool {
        let mut above = std::iter::successors(Some(dir), |dir| dir.parent());
        above.any(|dir| self.skipped.contains(&**dir.path()))
    }

    /// Adds a record for a directory, if there is none.
    fn begin(&mut self, dir: &Arc<Dir>) {
        let key = Arc::as_ptr(dir);
        if self.records.contains_key(&key) {
            return;
        }
        let above = dir.parent().map(Arc::as_ptr);
        let usage = match above {
            None => self.usage,
            // A directory that has replaced another one meanwhile may not have been in a batch.
            Some(above) => {
                let above = self.records.get_mut(&above);
                let name = dir.path().file_name();
                above
                    .zip(name)
                    .and_then(|(above, name)| above.below.remove(name))
                    .unwrap_or_default()
            }
        };
        let record = Record {
            dir: Arc::downgrade(dir),
            path: dir.path().to_path_buf(),
            depth: dir.depth(),
            above,
            usage,
            below: HashMap::new(),
        };
        self.records.insert(key, record);
    }

    /// Removes and returns complete directories if there are many records. A directory comes after
    /// its subdirectories.
    pub fn over(&mut self) -> Vec<Over> {
        if self.records.len() < self.many {
            return Vec::new();
        }
        let over = self.take(|record| record.dir.strong_count() == 0);
        self.many = (2 * self.records.len()).max(FEW);
        over
    }

    /// All remaining directories, at the end of the walk.
    pub fn rest(mut self) -> Vec<Over> {
        let mut over = self.take(|_| true);
        // An empty root was not in a batch.
        if over.last().is_none_or(|last| last.path != self.root) {
            over.push(Over {
                path: self.root,
                usage: self.usage,
            });
        }
        over
    }

    fn take(&mut self, is_over: impl Fn(&Record) -> bool) -> Vec<Over> {
        let records = self.records.iter();
        let mut keys: Vec<(usize, Key)> = records.map(|(key, r)| (r.depth, *key)).collect();
        keys.sort_unstable();
        // Workers complete directories meanwhile. A directory is complete after everything below
        // it, so parents are checked before their subdirectories: all directories below one that is
        // taken are taken too. The fence orders the checks.
        let mut taken: HashMap<Key, Record> = HashMap::new();
        for (_, key) in &keys {
            if self.records.get(key).is_some_and(&is_over) {
                fence(Acquire);
                taken.extend(self.records.remove_entry(key));
            }
        }
        let mut over = Vec::with_capacity(taken.len());
        // The deepest directories first, because their totals are added to their parents.
        for (_, key) in keys.into_iter().rev() {
            let Some(record) = taken.remove(&key) else {
                continue;
            };
            let mut usage = record.usage;
            for (name, below) in record.below {
                usage += below;
                over.push(Over {
                    path: record.path.join(name),
                    usage: below,
                });
            }
            if let Some(above) = record.above
                && let Some(above) = taken.get_mut(&above).or(self.records.get_mut(&above))
            {
                above.usage += usage;
            }
            over.push(Over {
                path: record.path,
                usage,
            });
        }
        over.sort_by(|a, b| outwards(&a.path, &b.path));
        over
    }
}

impl Sum<'_> {
    /// Adds a file.
    pub fn add(&mut self, usage: Usage) {
        self.record.usage += usage;
    }

    /// Adds a subdirectory. `usage` is that of the directory alone.
    pub fn add_directory(&mut self, name: &OsStr, usage: Usage) {
        if self.dir.depth() >= self.depth {
            self.record.usage += usage;
        } else if let Some(twice) = self.record.below.insert(name.to_owned(), usage) {
            self.record.usage += twice;
        }
    }

    /// Skips a subdirectory that was counted in another tree, and everything below it.
    pub fn skip(&mut self, name: &OsStr) {
        self.skipped.insert(self.dir.path().join(name));
    }
}

/// The order by path, except that a directory comes after everything below it.
fn outwards(a: &Path, b: &Path) -> Ordering {
    match a.cmp(b) {
        Ordering::Less if b.starts_with(a) => Ordering::Greater,
        Ordering::Greater if a.starts_with(b) => Ordering::Less,
        order => order,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use nowait::Walk;

    use super::*;

    /// A worker completes a directory, and with it the parents, between two checks.
    #[test]
    fn a_directory_is_not_complete_before_what_is_below_it() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..100 {
            let below = dir.path().join(format!("{at}/below"));
            std::fs::create_dir_all(&below).unwrap();
            std::fs::write(below.join("file"), "").unwrap();
        }
        let mut tree = Tree::new(dir.path(), Usage::default(), usize::MAX);
        let mut walk = Walk::blocking_open(dir.path()).unwrap();
        let mut dirs = Vec::new();
        while let Some(found) = walk.blocking_batch() {
            let dir = found.unwrap().dir().clone();
            assert!(tree.directory(&dir).is_some());
            dirs.push(dir);
        }
        let deepest = tree.records.values().map(|record| record.depth).max();
        let completed = Cell::new(false);
        let over = tree.take(|record| {
            let is_over = completed.get();
            completed.set(is_over || Some(record.depth) == deepest);
            is_over
        });
        let taken: HashSet<&Path> = over.iter().map(|over| over.path.as_path()).collect();
        for record in tree.records.values() {
            let mut above = record.path.ancestors().skip(1);
            assert!(
                !above.any(|above| taken.contains(above)),
                "{:?}",
                record.path
            );
        }
    }
}
