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

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
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
    skipped: Skipped,
    /// The number of records from which complete directories are searched for.
    many: usize,
}

/// The address of a directory's [`Dir`]. It is not reused as long as the record holds a `Weak`.
type Key = *const Dir;

/// A directory of which entries were returned.
struct Record {
    dir: Weak<Dir>,
    /// The name in the parent; that of the root is empty.
    name: OsString,
    depth: usize,
    above: Option<Key>,
    usage: Usage,
    /// The names of subdirectories without a record, and the usage of each alone.
    below: HashMap<OsString, Usage>,
}

/// Directories that were counted in another tree, and those below them.
#[derive(Default)]
struct Skipped {
    /// The names of those that were found, by their parents.
    names: HashMap<Key, (Weak<Dir>, HashSet<OsString>)>,
    /// Those of which entries were returned.
    entered: HashMap<Key, Weak<Dir>>,
}

/// Adds the entries of one directory to the record that counts them.
pub struct Sum<'a> {
    record: &'a mut Record,
    skipped: &'a mut Skipped,
    dir: &'a Arc<Dir>,
    depth: usize,
}

/// A function that takes each complete directory: its path, and the total of the directory and
/// everything below it.
type Show<'a, E> = dyn FnMut(&Path, Usage) -> Result<(), E> + 'a;

impl Tree {
    /// The tree of a root directory. `usage` is that of the root directory alone.
    pub fn new(root: &Path, usage: Usage, depth: usize) -> Tree {
        Tree {
            root: root.to_owned(),
            usage,
            depth,
            records: HashMap::new(),
            skipped: Skipped::default(),
            many: FEW,
        }
    }

    /// The sum for the entries of a directory; `None` if the directory is not to be counted.
    pub fn directory<'a>(&'a mut self, dir: &'a Arc<Dir>) -> Option<Sum<'a>> {
        if self.skipped.contains(dir) {
            return None;
        }
        let shown = dir.ancestor(dir.depth().min(self.depth))?;
        self.begin(shown);
        Some(Sum {
            record: self.records.get_mut(&Arc::as_ptr(shown))?,
            skipped: &mut self.skipped,
            dir,
            depth: self.depth,
        })
    }

    /// Adds a record for a directory, if there is none.
    fn begin(&mut self, dir: &Arc<Dir>) {
        let key = Arc::as_ptr(dir);
        if self.records.contains_key(&key) {
            return;
        }
        let above = dir.parent().map(Arc::as_ptr);
        let name = dir.name().to_owned();
        let usage = match above {
            None => self.usage,
            // A directory that has replaced another one meanwhile may not have been in a batch.
            Some(above) => {
                let above = self.records.get_mut(&above);
                above
                    .and_then(|above| above.below.remove(&name))
                    .unwrap_or_default()
            }
        };
        let record = Record {
            dir: Arc::downgrade(dir),
            name,
            depth: dir.depth(),
            above,
            usage,
            below: HashMap::new(),
        };
        self.records.insert(key, record);
    }

    /// Returns true if there are so many records that complete directories are to be removed.
    pub fn is_large(&self) -> bool {
        self.records.len() >= self.many
    }

    /// Removes and shows complete directories. A directory comes after its subdirectories.
    pub fn over<E>(&mut self, show: &mut Show<'_, E>) -> Result<(), E> {
        let over = self.take(|record| record.dir.strong_count() == 0);
        self.many = (2 * self.records.len()).max(FEW);
        self.skipped.forget();
        self.show(over, show)
    }

    /// Shows all remaining directories, at the end of the walk.
    pub fn rest<E>(mut self, show: &mut Show<'_, E>) -> Result<(), E> {
        let over = self.take(|_| true);
        let is_empty = !over.values().any(|record| record.above.is_none());
        self.show(over, show)?;
        // An empty root was not in a batch.
        match is_empty {
            true => show(&self.root, self.usage),
            false => Ok(()),
        }
    }

    /// Removes complete directories. Their usage is then that of everything below them, too.
    fn take(&mut self, is_over: impl Fn(&Record) -> bool) -> HashMap<Key, Record> {
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
        // The deepest directories first, because their totals are added to their parents.
        for (_, key) in keys.into_iter().rev() {
            let Some(record) = taken.get_mut(&key) else {
                continue;
            };
            for below in record.below.values() {
                record.usage += *below;
            }
            let usage = record.usage;
            if let Some(above) = record.above
                && let Some(above) = taken.get_mut(&above).or(self.records.get_mut(&above))
            {
                above.usage += usage;
            }
        }
        taken
    }

    /// Shows directories that were taken, those of one parent in the order of their names.
    fn show<E>(&self, mut taken: HashMap<Key, Record>, show: &mut Show<'_, E>) -> Result<(), E> {
        let mut below: HashMap<Option<Key>, Vec<Key>> = HashMap::new();
        for (key, record) in &taken {
            below.entry(record.above).or_default().push(*key);
        }
        let is_top = |above: &&Option<Key>| above.is_none_or(|above| !taken.contains_key(&above));
        let tops: Vec<Option<Key>> = below.keys().filter(is_top).copied().collect();
        for above in tops {
            let mut path = above.map_or_else(Vec::new, |above| self.path(above));
            let mut stack = vec![Level {
                start: path.len(),
                below: by_name(below.remove(&above), &taken, HashMap::new()),
                usage: None,
            }];
            while let Some(level) = stack.last_mut() {
                let Some((name, one)) = level.below.pop() else {
                    if let Some(usage) = level.usage {
                        show(Path::new(OsStr::from_bytes(&path)), usage)?;
                    }
                    path.truncate(level.start);
                    stack.pop();
                    continue;
                };
                let start = path.len();
                append(&mut path, &name);
                match one {
                    Below::Alone(usage) => {
                        show(Path::new(OsStr::from_bytes(&path)), usage)?;
                        path.truncate(start);
                    }
                    Below::Record(key) => {
                        let Some(record) = taken.remove(&key) else {
                            continue;
                        };
                        if record.above.is_none() {
                            path.extend_from_slice(self.root.as_os_str().as_bytes());
                        }
                        stack.push(Level {
                            start,
                            below: by_name(below.remove(&Some(key)), &taken, record.below),
                            usage: Some(record.usage),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The path of a directory that has a record.
    fn path(&self, key: Key) -> Vec<u8> {
        let above = |record: &&Record| self.records.get(&record.above?);
        let records = std::iter::successors(self.records.get(&key), above);
        let mut names: Vec<&OsStr> = records.map(|record| &*record.name).collect();
        let mut path = self.root.as_os_str().as_bytes().to_vec();
        // The last one is the root.
        names.pop();
        for name in names.iter().rev() {
            append(&mut path, name);
        }
        path
    }
}

/// A directory whose subdirectories are being shown.
struct Level {
    /// The length of the path of its parent.
    start: usize,
    /// Its subdirectories, the next one at the end.
    below: Vec<(OsString, Below)>,
    /// `None` if the directory itself is not shown.
    usage: Option<Usage>,
}

/// A subdirectory, with or without a record.
enum Below {
    Record(Key),
    Alone(Usage),
}

/// The subdirectories of a directory, the first one at the end.
fn by_name(
    records: Option<Vec<Key>>,
    taken: &HashMap<Key, Record>,
    alone: HashMap<OsString, Usage>,
) -> Vec<(OsString, Below)> {
    let alone = alone.into_iter();
    let mut below: Vec<_> = alone
        .map(|(name, usage)| (name, Below::Alone(usage)))
        .collect();
    for key in records.unwrap_or_default() {
        if let Some(record) = taken.get(&key) {
            below.push((record.name.clone(), Below::Record(key)));
        }
    }
    below.sort_by(|(a, _), (b, _)| b.cmp(a));
    below
}

/// Appends a name to a path. The name of a root is empty.
fn append(path: &mut Vec<u8>, name: &OsStr) {
    if !name.is_empty() && path.last().is_some_and(|last| *last != b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
}

impl Skipped {
    /// Returns true if a directory is one of these. A directory is asked about after its parent,
    /// because entries of the parent are returned first.
    fn contains(&mut self, dir: &Arc<Dir>) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let Some(parent) = dir.parent().map(Arc::as_ptr) else {
            return false;
        };
        let named = |(_, names): &(_, HashSet<OsString>)| names.contains(dir.name());
        let is_skipped =
            self.entered.contains_key(&parent) || self.names.get(&parent).is_some_and(named);
        if is_skipped {
            self.entered.insert(Arc::as_ptr(dir), Arc::downgrade(dir));
        }
        is_skipped
    }

    fn insert(&mut self, parent: &Arc<Dir>, name: &OsStr) {
        let key = Arc::as_ptr(parent);
        let of_parent = self.names.entry(key);
        let of_parent = of_parent.or_insert_with(|| (Arc::downgrade(parent), HashSet::new()));
        of_parent.1.insert(name.to_owned());
    }

    /// Removes the directories of which no more entries are to come.
    fn forget(&mut self) {
        self.names.retain(|_, (dir, _)| dir.strong_count() > 0);
        self.entered.retain(|_, dir| dir.strong_count() > 0);
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
        self.skipped.insert(self.dir, name);
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
        assert!(!over.is_empty());
        for record in tree.records.values() {
            let above = record.above.and_then(|above| over.get(&above));
            assert!(above.is_none(), "{:?}", record.name);
        }
    }
}
