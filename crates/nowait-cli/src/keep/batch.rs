//! The files, or the windows of a large file, that are read and locked between two looks at the events.

use std::collections::VecDeque;

use nowait::residency::page_size;
use nowait_page_cache::{
    Allowed, Limits, Prefetcher, Request, Selection, Stamp, Stop, data_ranges, engine,
};

use super::entry::beginning;
use super::files::Files;
use super::report::WhileReading;
use super::target::Target;

/// The most files of a batch.
const MAX_FILES: usize = 1000;

/// The operations in flight.
const DEPTH: u32 = 32;

/// A file may have grown by so many bytes since it was planned.
const GROWTH: u64 = 1 << 20;

/// The files that are read and locked at once.
#[derive(Default)]
pub struct Batch {
    requests: Vec<Request>,
    /// The files that are complete after the batch.
    finished: Vec<Target>,
    /// The large file of which more is to be read.
    partly: Option<Target>,
    /// The bytes that are read or locked.
    pub bytes: u64,
    /// The residency of some files is unknown.
    pub has_unknown: bool,
}

impl Batch {
    /// Takes files from a queue, about `most` bytes of them.
    pub fn take(queue: &mut VecDeque<Target>, files: &mut Files, most: u64) -> Batch {
        let mut batch = Batch::default();
        files.open(queue.iter().take(MAX_FILES));
        while batch.bytes < most && batch.finished.len() < MAX_FILES && batch.partly.is_none() {
            let Some(target) = queue.pop_front() else {
                break;
            };
            batch.add(target, files, most);
        }
        batch
    }

    fn add(&mut self, target: Target, files: &mut Files, most: u64) {
        let Some(entry) = files.entry(&target).filter(|entry| entry.needs_work()) else {
            return;
        };
        let (missing, lock_to) = (entry.missing(), entry.lock_to);
        let whole = entry.planned >= entry.size && entry.size <= most;
        self.has_unknown |= entry.unknown.is_some();
        if !whole {
            return self.add_window(target, files, most);
        }
        self.bytes += missing.max(lock_to);
        if missing > 0 {
            self.requests.push(Request {
                file: files.file(&target),
                selection: None,
            });
        }
        self.finished.push(target);
    }

    /// Adds a window of a large file, or of a file of which a part is planned.
    fn add_window(&mut self, mut target: Target, files: &mut Files, most: u64) {
        let file = files.file(&target);
        let (Ok((opened, stat)), Some(entry)) = (file.open(), files.entry(&target)) else {
            // The look at the finished file finds the reason.
            return self.finished.push(target);
        };
        let mut rest = beginning(data_ranges(&opened, &stat), entry.planned);
        rest.retain_mut(|range| {
            range.start = range.start.max(target.from);
            range.start < range.end
        });
        let end = rest.last().map_or(0, |last| last.end);
        let page = page_size();
        let len = ((most - self.bytes) / page * page).max(page);
        let ranges = beginning(rest, len);
        target.from = ranges.last().map_or(end, |last| last.end);
        self.bytes += ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>();
        if entry.missing() > 0 && !ranges.is_empty() {
            let stamp = Stamp::of(&stat);
            let selection = Some(Selection { ranges, stamp });
            self.requests.push(Request { file, selection });
        }
        match target.from >= end {
            true => self.finished.push(target),
            false => self.partly = Some(target),
        }
    }

    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.partly.is_none()
    }

    /// Reads what is missing, until a stop is requested. Returns the number of bytes that were read.
    pub fn read(&mut self, files: &Files, stop: &Stop) -> u64 {
        let requests = std::mem::take(&mut self.requests);
        if requests.is_empty() {
            return 0;
        }
        let limits = Limits {
            depth: DEPTH,
            budget: Allowed::Bytes(self.bytes.saturating_add(GROWTH)),
            ..Limits::default()
        };
        let engine = match engine(&limits) {
            Ok(engine) => engine,
            Err(e) => {
                files.reports.say(format_args!("cannot read now: {e}"));
                return 0;
            }
        };
        let reporter = WhileReading(&files.reports);
        let mut progress = |_| {};
        let mut prefetcher = Prefetcher::new(engine, limits, None, &reporter, &mut progress, stop);
        for request in requests {
            if prefetcher.add(request).is_err() {
                break;
            }
        }
        prefetcher.finish().read_bytes
    }

    /// After a complete read: looks at the files, counts what is new, and locks them. Returns the file
    /// of which more is to be read.
    pub fn finish(self, files: &mut Files) -> Option<Target> {
        let mut before = |target| {
            let entry = files.entry(target);
            entry.map_or((0, false), |entry| (entry.resident, entry.was_full))
        };
        let before: Vec<(u64, bool)> = self.finished.iter().map(&mut before).collect();
        files.examine(&self.finished);
        for (target, (resident, was_full)) in self.finished.iter().zip(before) {
            if let Some(entry) = files.entry(target) {
                entry.tried = true;
                let now = match entry.unknown {
                    Some(_) => entry.planned,
                    None => entry.resident,
                };
                files.roots[target.root].count(now.saturating_sub(resident), was_full);
            }
            lock(target, files, u64::MAX);
        }
        let partly = self.partly?;
        if let Some(entry) = files.entry(&partly) {
            let now = partly.from.min(entry.planned);
            let (more, was_full) = (now.saturating_sub(entry.resident), entry.was_full);
            entry.resident += more;
            files.roots[partly.root].count(more, was_full);
        }
        lock(&partly, files, partly.from);
        Some(partly)
    }

    /// After an interrupted read: looks at the files. Returns them, to be read again.
    pub fn interrupted(mut self, files: &mut Files) -> Vec<Target> {
        self.finished.extend(self.partly);
        self.finished.iter_mut().for_each(|target| target.from = 0);
        files.examine(&self.finished);
        self.finished
    }
}

/// Locks a file up to `end`, as far as planned. Failures are reported.
fn lock(target: &Target, files: &mut Files, end: u64) {
    let file = files.file(target);
    let Some(entry) = files.entry(target) else {
        return;
    };
    let Err(why) = entry.lock(&file, end) else {
        return;
    };
    // A file that is shorter by now is looked at again.
    let planned = entry.lock_to;
    if file
        .open()
        .is_ok_and(|(_, stat)| stat.st_size as u64 >= planned)
    {
        let what = format_args!("cannot be locked: {why}; it is touched");
        files.reports.say_of(&file.path(), what);
    }
}
