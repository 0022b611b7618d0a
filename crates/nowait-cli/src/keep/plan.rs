//! The plan: what of each file is to be resident, and what is to be locked.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::entry::{Entry, evict_after, in_pages};
use super::files::Files;
use super::lock::Limits;
use super::root::Root;
use super::target::Target;
use crate::name::plural;
use crate::size::Size;

/// The plan that the files have.
pub struct Plan {
    /// The limits of locking; `None` if nothing is to be locked.
    locking: Option<Limits>,
    /// The bytes that may be kept: the budget, or less under memory pressure.
    limit: u64,
    /// The bytes that may be locked.
    lockable: u64,
    /// The bytes that the plan locks.
    locks: u64,
    /// True if `lockable` was too small for some file.
    is_lock_cut: bool,
    /// All files fit into the limit, and take this much of it in whole pages.
    fits: Option<u64>,
    /// The time that it took to make the plan.
    pub took: Duration,
}

impl Plan {
    /// No plan yet.
    pub fn new(lock: bool) -> Plan {
        Plan {
            locking: lock.then(Limits::here),
            limit: 0,
            lockable: 0,
            locks: 0,
            is_lock_cut: false,
            fits: None,
            took: Duration::ZERO,
        }
    }

    /// The locked bytes.
    pub fn locked(&self, files: &Files) -> u64 {
        match self.locking {
            Some(_) => files.entries().map(Entry::locked).sum(),
            None => 0,
        }
    }

    /// The bytes that are to be locked.
    pub fn locks(&self) -> u64 {
        self.locks
    }

    /// Returns true if other limits are a reason to plan again. Small changes of the available memory
    /// are none.
    pub fn is_outdated(&self, limit: u64, lockable: u64) -> bool {
        let room = self.lockable.saturating_add(self.lockable / 8);
        if self.locks > lockable || self.is_lock_cut && lockable > room {
            return true;
        }
        let shrunk = limit < self.limit - self.limit / 32;
        let grown = limit > self.limit.saturating_add(self.limit / 8);
        match self.fits {
            Some(used) => shrunk && used > limit,
            None => shrunk || grown,
        }
    }

    /// Divides the limit among the files, in their order, and evicts and unlocks the rest. Of all files, `lockable`
    /// bytes are locked at most. Returns the files that are to be read or locked.
    pub fn make(&mut self, files: &mut Files, limit: u64, lockable: u64) -> Vec<Target> {
        let began = Instant::now();
        let mut left = limit;
        let mut fits = true;
        let mut seen = HashSet::new();
        let several = files.roots.len() > 1;
        let (mut smaller, mut part) = (Vec::new(), None);
        let mut locking = self.locking;
        if let Some(limits) = &mut locking {
            limits.available = lockable;
        }
        for (number, root) in files.roots.iter_mut().enumerate() {
            root.directories.for_each_file(|directory, name, entry| {
                let may_repeat = (several || entry.linked) && entry.id != (0, 0);
                let again = may_repeat && !seen.insert(entry.id);
                entry.again = again;
                let wanted = if again { 0 } else { in_pages(entry.size) };
                let given = wanted.min(left);
                left -= given;
                fits &= given == wanted;
                let planned = given.min(entry.size);
                let target = || (Target::new(number, directory, name), planned, entry.id);
                if planned < entry.planned.min(entry.size) && !again {
                    smaller.push(target());
                }
                if 0 < planned && planned < entry.size {
                    part = Some(target());
                }
                replan(entry, planned);
            });
            let why = locking.as_mut().and_then(|left| plan_locks(root, left));
            let said = why.unwrap_or_default();
            if said != root.said && !said.is_empty() {
                files.reports.say_of(&root.path, &said);
            }
            root.said = said;
        }
        self.limit = limit;
        self.lockable = lockable;
        self.locks = locking.map_or(0, |left| lockable - left.available);
        self.is_lock_cut = locking.is_some_and(|left| left.is_cut);
        self.fits = (fits && self.locking.is_none()).then_some(limit - left);
        for (target, planned, id) in smaller {
            evict_after(&files.file(&target), planned, id);
        }
        files.resized = false;
        let before = files.part;
        files.part = part.as_ref().map(|(_, planned, id)| (*id, *planned));
        if let Some((target, ..)) = part.filter(|_| files.part != before) {
            // Its residency is that of the planned part from now on.
            files.examine(&[target]);
        }
        let work = needing_work(files);
        self.took = began.elapsed();
        work
    }
}

/// Plans so many bytes of a file.
fn replan(entry: &mut Entry, planned: u64) {
    if planned < entry.planned.min(entry.size) && !entry.again {
        // Evicted bytes are read again if they are planned again.
        entry.resident = entry.resident.min(planned);
    }
    if planned > entry.planned {
        entry.was_full = false;
    }
    entry.tried &= planned == entry.planned;
    entry.planned = planned;
}

/// The files that are to be read or locked.
fn needing_work(files: &Files) -> Vec<Target> {
    let work = files.roots.iter().enumerate().flat_map(|(number, root)| {
        let entries = root.entries().filter(|(_, _, entry)| entry.needs_work());
        entries.map(move |(directory, name, _)| Target::new(number, directory, name))
    });
    work.collect()
}

/// A size of files, and how many of this size are locked with so many mappings. Larger files are locked, and
/// smaller ones are not.
fn least_locked(sizes: &mut [u64], mappings: usize) -> (u64, usize) {
    if sizes.len() <= mappings {
        return (0, usize::MAX);
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes[mappings.saturating_sub(1)];
    let larger = sizes.iter().take_while(|size| **size > least).count();
    (least, mappings.saturating_sub(larger))
}

/// Chooses the files of a path that are locked: all, or the largest ones if there are too many.
/// Returns a message if some are not locked.
fn plan_locks(root: &mut Root, left: &mut Limits) -> Option<String> {
    let is_lockable = |entry: &Entry| entry.planned > 0 && !entry.sparse;
    let mut sizes: Vec<u64> = root
        .entries()
        .filter(|(_, _, entry)| is_lockable(entry))
        .map(|(_, _, entry)| entry.planned)
        .collect();
    let (least, mut of_least) = least_locked(&mut sizes, left.mappings);
    let (mut files, mut bytes) = (0u64, 0u64);
    let mut reasons = Vec::new();
    root.directories.for_each_file(|_, _, entry| {
        let wanted = in_pages(entry.planned);
        let is_small = entry.planned < least || (entry.planned == least && of_least == 0);
        let mut given = 0;
        let mut why = "RLIMIT_MEMLOCK";
        if entry.sparse {
            why = "files with holes";
        } else if is_small || left.mappings == 0 {
            why = "vm.max_map_count";
        } else if entry.planned > 0 {
            given = wanted.min(left.bytes);
        }
        // The available memory changes all the time: no message says what it leaves out.
        let wanted = if given > left.available {
            left.available
        } else {
            wanted
        };
        left.is_cut |= given > left.available;
        given = given.min(left.available);
        if given > 0 {
            left.bytes -= given;
            left.available -= given;
            left.mappings -= 1;
            of_least -= usize::from(entry.planned == least);
        }
        if given < wanted {
            files += 1;
            bytes += wanted - given;
            if !reasons.contains(&why) {
                reasons.push(why);
            }
        }
        let lock_to = given.min(entry.planned);
        entry.tried &= lock_to == entry.lock_to;
        entry.lock_to = lock_to;
        match &mut entry.lock {
            Some(lock) if lock_to > 0 => lock.shrink(lock_to),
            lock => *lock = None,
        }
    });
    (files > 0).then(|| {
        let (bytes, files) = (Size(bytes), plural(files, "file"));
        let reasons = reasons.join(", ");
        format!("{bytes} of {files} are touched, not locked: {reasons}")
    })
}
