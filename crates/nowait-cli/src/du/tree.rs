//! The directories of a tree whose sums are not known yet.
//!
//! ```text
//!  entries of a directory ─► its record: a sum, and the directories in it that were not begun
//!  nobody has its place any more ─► over: shown, and added to the one that it is in
//! ```
//! A walk mixes directories and does not say when one is over. But it has a directory's [`Place`] for as
//! long as something of it, or below it, is still to come: when nobody has it any more, all that is in
//! it was handed out. So what is held is little more than what the walk itself holds.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use nowait::walk::Place;

/// As many records are no burden: in smaller trees all directories come in order in the end.
const FEW: usize = 4096;

/// The directories that are not over.
pub struct Tree {
    root: PathBuf,
    /// Of the root by itself.
    bytes: u64,
    /// The deepest that are shown; what is below them is added to them.
    depth: usize,
    records: HashMap<Key, Record>,
    /// Directories that were counted elsewhere.
    skipped: HashSet<PathBuf>,
    /// How many records are looked through for those that are over.
    many: usize,
}

/// Where a directory's place is in memory. As long as a `Weak` is held, no other one is there.
type Key = *const Place;

/// A directory that has been begun.
struct Record {
    place: Weak<Place>,
    path: PathBuf,
    depth: usize,
    above: Option<Key>,
    bytes: u64,
    /// Directories in it that have not been begun, and what they take by themselves.
    below: HashMap<OsString, u64>,
}

/// A directory that is over.
pub struct Over {
    pub path: PathBuf,
    /// With all that is in it.
    pub bytes: u64,
}

/// What is found of one directory.
pub struct Sum<'a> {
    record: &'a mut Record,
    skipped: &'a mut HashSet<PathBuf>,
    place: &'a Place,
    depth: usize,
}

impl Tree {
    /// Of a root that takes so many bytes by itself.
    pub fn new(root: &Path, bytes: u64, depth: usize) -> Tree {
        Tree {
            root: root.to_owned(),
            bytes,
            depth,
            records: HashMap::new(),
            skipped: HashSet::new(),
            many: FEW,
        }
    }

    /// Where to add what was found in a directory; `None` if it is not to be counted.
    pub fn directory<'a>(&'a mut self, place: &'a Arc<Place>) -> Option<Sum<'a>> {
        if !self.skipped.is_empty() && self.is_skipped(place) {
            return None;
        }
        let mut shown = place;
        while shown.depth() > self.depth {
            shown = shown.parent()?;
        }
        self.begin(shown);
        Some(Sum {
            record: self.records.get_mut(&Arc::as_ptr(shown))?,
            skipped: &mut self.skipped,
            place,
            depth: self.depth,
        })
    }

    fn is_skipped(&self, place: &Arc<Place>) -> bool {
        let mut above = std::iter::successors(Some(place), |place| place.parent());
        above.any(|place| self.skipped.contains(&**place.path()))
    }

    /// Makes a record of a directory, if there is none.
    fn begin(&mut self, place: &Arc<Place>) {
        let key = Arc::as_ptr(place);
        if self.records.contains_key(&key) {
            return;
        }
        let above = place.parent().map(Arc::as_ptr);
        let bytes = match above {
            None => self.bytes,
            // One that has taken another's place meanwhile may have been in no batch.
            Some(above) => {
                let above = self.records.get_mut(&above);
                let name = place.path().file_name();
                above
                    .zip(name)
                    .and_then(|(above, name)| above.below.remove(name))
                    .unwrap_or(0)
            }
        };
        let record = Record {
            place: Arc::downgrade(place),
            path: place.path().to_path_buf(),
            depth: place.depth(),
            above,
            bytes,
            below: HashMap::new(),
        };
        self.records.insert(key, record);
    }

    /// Now and then: directories that are over. Each comes after those in it.
    pub fn over(&mut self) -> Vec<Over> {
        if self.records.len() < self.many {
            return Vec::new();
        }
        let over = self.take(|record| record.place.strong_count() == 0);
        self.many = (2 * self.records.len()).max(FEW);
        over
    }

    /// At the end: all that are left.
    pub fn rest(mut self) -> Vec<Over> {
        let mut over = self.take(|_| true);
        // A root that is empty was in no batch.
        if over.last().is_none_or(|last| last.path != self.root) {
            over.push(Over {
                path: self.root,
                bytes: self.bytes,
            });
        }
        over
    }

    fn take(&mut self, is_over: impl Fn(&Record) -> bool) -> Vec<Over> {
        let taken = self.records.extract_if(|_, record| is_over(record));
        let mut taken: HashMap<Key, Record> = taken.collect();
        let mut keys: Vec<(usize, Key)> = taken.iter().map(|(key, r)| (r.depth, *key)).collect();
        // The deepest first: what they take is added to those that they are in.
        keys.sort_unstable_by(|a, b| b.cmp(a));
        let mut over = Vec::with_capacity(keys.len());
        for (_, key) in keys {
            let Some(record) = taken.remove(&key) else {
                continue;
            };
            let mut bytes = record.bytes;
            for (name, below) in record.below {
                bytes += below;
                over.push(Over {
                    path: record.path.join(name),
                    bytes: below,
                });
            }
            if let Some(above) = record.above
                && let Some(above) = taken.get_mut(&above).or(self.records.get_mut(&above))
            {
                above.bytes += bytes;
            }
            over.push(Over {
                path: record.path,
                bytes,
            });
        }
        over.sort_by(|a, b| outwards(&a.path, &b.path));
        over
    }
}

impl Sum<'_> {
    /// A file.
    pub fn add(&mut self, bytes: u64) {
        self.record.bytes += bytes;
    }

    /// A directory, and what it takes by itself.
    pub fn add_directory(&mut self, name: &OsStr, bytes: u64) {
        if self.place.depth() >= self.depth {
            self.record.bytes += bytes;
        } else if let Some(twice) = self.record.below.insert(name.to_owned(), bytes) {
            self.record.bytes += twice;
        }
    }

    /// A directory that was counted elsewhere, with all that is in it.
    pub fn skip(&mut self, name: &OsStr) {
        self.skipped.insert(self.place.path().join(name));
    }
}

/// By name, and a directory after what is in it.
fn outwards(a: &Path, b: &Path) -> Ordering {
    match a.cmp(b) {
        Ordering::Less if b.starts_with(a) => Ordering::Greater,
        Ordering::Greater if a.starts_with(b) => Ordering::Less,
        order => order,
    }
}
