//! The state of the scan of one directory.
//!
//! ```text
//!  Listing ─► Unsorted ─► sort ─► Queries ─► Output ─► returned
//!  └────── at most so many entries and bytes ───────┘
//! ```
//!
//! `pick` chooses the next piece of work for a worker. `finish_piece` stores its result. A scan by
//! name collects all entries in `ByName` before it returns the first.

mod queues;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use queues::{BatchPart, Buffered, ByName, NumberedBatch, Output, Queries, Unsorted};

use super::dir::Dir;
use super::directory::Directory;
use super::entry::{Batch, EntryTable};
use super::list::{DirStream, Listed, Listing, Problem, Split, Step};
use super::metadata::Query;
use super::order::{Order, StatOrder, by_name, slices, sorted};
use super::plan::Plan;
use super::stats::Stats;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::cast::to_usize;
use crate::task_group::Job;

/// Entries of a batch. The cost of passing a batch on is then small compared with that of its
/// queries.
const BATCH: usize = 128;
/// Entries of a batch if each query may wait for the device, so that many workers share a run.
const SLOW_BATCH: usize = 32;

/// The options of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) query: Query,
    pub(crate) order: Order,
    /// The limits for entries and bytes that are listed and not yet returned.
    pub(crate) buffered_entries: usize,
    pub(crate) buffered_bytes: usize,
    /// The number of entries after which the listing ends.
    pub(crate) max_entries: u64,
    /// If true, results are counted and dropped.
    pub(crate) drop: bool,
}

impl Config {
    /// The limits for entries and bytes that are listed and not yet returned.
    fn limits(&self) -> (usize, usize) {
        (self.buffered_entries, self.buffered_bytes)
    }
}

/// The state of the scan of one directory.
#[derive(Debug)]
pub(crate) struct Progress {
    /// `None` when no work remains for the directory.
    directory: Option<Arc<Directory>>,
    dir: Arc<Dir>,
    config: Arc<Config>,
    plan: Plan,
    listing: Listing,
    /// The number of workers that are listing.
    listers: usize,
    unsorted: Unsorted,
    queries: Queries,
    /// `Some` for a scan by name.
    by_name: Option<ByName>,
    output: Output,
    buffered: Buffered,
    stats: Stats,
    /// The permissions of the walk that the directory belongs to.
    allowed: Allowed,
}

/// The permissions that a walk gives to each of its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// The limit of the walk permits more entries.
    pub(crate) list: bool,
    /// Descriptors are available for more parts.
    pub(crate) split: bool,
}

/// A piece of work for a worker.
#[derive(Debug)]
pub(crate) struct Piece {
    directory: Arc<Directory>,
    config: Arc<Config>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    List(DirStream),
    Split {
        position: u64,
        buffer_size: usize,
    },
    Sort {
        rows: Vec<EntryTable>,
        stat_order: StatOrder,
        size: usize,
    },
    Query(NumberedBatch, BatchPart),
    SortByName(Vec<EntryTable>),
}

/// The result of a piece.
#[derive(Debug)]
pub(crate) struct Done(Outcome);

#[derive(Debug)]
enum Outcome {
    Listed(Listed),
    Split(Split),
    Sorted(VecDeque<EntryTable>),
    Queried(NumberedBatch, BatchPart),
    SortedByName(VecDeque<EntryTable>),
}

impl Progress {
    pub(crate) fn new(
        directory: Arc<Directory>,
        dir: Arc<Dir>,
        config: Arc<Config>,
        plan: Plan,
    ) -> Progress {
        let by_name = config.order == Order::Name;
        let limit = match by_name {
            true => usize::MAX,
            false => config.buffered_entries.min(config.buffered_bytes / 64),
        };
        // The first entries of several parts would not be the first of the directory.
        let parts = match config.max_entries {
            u64::MAX => plan.parts,
            _ => 1,
        };
        Progress {
            listing: Listing::new(&directory, parts, limit),
            dir,
            directory: Some(directory),
            plan,
            listers: 0,
            unsorted: Unsorted::default(),
            queries: Queries::default(),
            by_name: by_name.then(ByName::default),
            output: Output {
                in_order: config.order == Order::Inode,
                ..Output::default()
            },
            buffered: Buffered {
                entries: 0,
                bytes: 0,
                has_metadata: config.query.fields.is_some(),
            },
            stats: Stats {
                parts: 1,
                ..Stats::default()
            },
            allowed: Allowed {
                list: true,
                split: true,
            },
            config,
        }
    }

    pub(crate) fn allow(&mut self, allowed: Allowed) {
        self.allowed = allowed;
        self.listing.allow_splits(allowed.split);
    }

    /// The number of open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        1 + self.listing.parts()
    }

    /// The number of entries that are listed and not yet returned.
    pub(crate) fn entries(&self) -> usize {
        self.buffered.entries
    }

    /// Returns true if everything has been returned.
    pub(crate) fn is_over(&self) -> bool {
        self.is_complete() && !self.has_ready()
    }

    /// The work done so far, without the counters of the threads.
    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    /// The next step of the listing, if there is room for its entries.
    fn pick_listing(&mut self) -> Option<Work> {
        if !self.may_list() {
            return None;
        }
        let step = self.listing.pick()?;
        self.listers += 1;
        Some(match step {
            Step::List(stream) => Work::List(stream),
            Step::Split(position) => Work::Split {
                position,
                buffer_size: self.listing.buffer_size(),
            },
        })
    }

    fn pick_query(&mut self, slow: bool) -> Option<Work> {
        let (batch, part) = self.queries.pop(self.plan.prefetch_first && slow)?;
        Some(Work::Query(batch, part))
    }

    fn pick_sort(&mut self, slow: bool) -> Option<Work> {
        if !self.may_sort() {
            return None;
        }
        let size = self.batch_size(slow);
        let unsorted = &mut self.unsorted;
        unsorted.sorting = true;
        unsorted.entries = 0;
        Some(Work::Sort {
            rows: std::mem::take(&mut unsorted.rows),
            stat_order: self.plan.stat_order,
            size,
        })
    }

    fn pick_sort_by_name(&mut self) -> Option<Work> {
        if !self.may_sort_by_name() {
            return None;
        }
        let by_name = self.by_name.as_mut()?;
        by_name.sorting = true;
        Some(Work::SortByName(std::mem::take(&mut by_name.rows)))
    }

    /// Returns true if there is something to list and room for it. The entries that listing workers
    /// may return are counted. If the limit is less than one step, one step runs at a time.
    fn may_list(&self) -> bool {
        if !self.allowed.list || !self.listing.has_step() || self.unsorted.entries >= self.run_len()
        {
            return false;
        }
        let expected = (self.listers + 1) * self.listing.step();
        self.by_name.is_some()
            || self.buffered.has_room(expected, self.config.limits())
            || (self.listers == 0 && self.buffered.entries == 0)
    }

    /// The number of entries that are sorted together: half of the limit, so that the other half
    /// can be listed meanwhile.
    fn run_len(&self) -> usize {
        if self.by_name.is_some() {
            usize::MAX
        } else {
            (self.config.buffered_entries / 2).max(1)
        }
    }

    /// Returns true if listed entries are to be sorted now: they are a whole run, or no more can be
    /// listed.
    fn may_sort(&self) -> bool {
        if self.unsorted.sorting || self.unsorted.rows.is_empty() {
            return false;
        }
        let no_more = self.listers == 0 && !self.may_list();
        self.plan.stat_order == StatOrder::Listed
            || self.unsorted.entries >= self.run_len()
            || no_more
    }

    /// The number of entries of a batch. The device may prove slow later, so a small directory has
    /// a batch for each of many workers, too.
    fn batch_size(&self, slow: bool) -> usize {
        match slow {
            true => SLOW_BATCH,
            false => (self.unsorted.entries / self.plan.workers).clamp(SLOW_BATCH, BATCH),
        }
    }

    /// Returns true if all entries are complete, and are to be sorted by name.
    fn may_sort_by_name(&self) -> bool {
        let waits = |by_name: &ByName| !by_name.sorting && !by_name.sorted;
        self.by_name.as_ref().is_some_and(waits) && self.all_queried()
    }

    fn all_queried(&self) -> bool {
        self.listing.is_over()
            && self.listers == 0
            && self.unsorted.rows.is_empty()
            && !self.unsorted.sorting
            && self.queries.is_empty()
    }

    /// Returns true if nothing remains except returning results.
    fn is_complete(&self) -> bool {
        self.all_queried() && self.by_name.as_ref().is_none_or(|by_name| by_name.sorted)
    }

    /// Takes these entries as the whole listing.
    pub(super) fn set_listing(&mut self, rows: Vec<EntryTable>) {
        for rows in rows {
            self.listers += 1;
            self.add_listed(rows, None);
        }
        self.listing.stop();
    }

    /// Lists a small directory, in the calling thread. Of another one, it lists the first names. Blocks.
    pub(super) fn list_if_small(&mut self) {
        self.run_next();
        if self.unsorted.entries <= BATCH {
            // It returns no names if the first names were all.
            self.run_next();
        }
        if self.listing.is_over() {
            // Puts the names into batches.
            self.run_next();
            self.close();
        }
    }

    fn run_next(&mut self) {
        if let Some(piece) = self.pick(false) {
            self.finish_piece(Progress::run(piece, None, &|| false));
        }
    }

    /// Stores listed names.
    fn add_listed(&mut self, mut rows: EntryTable, problem: Option<Problem>) {
        self.listers -= 1;
        self.stats.parts = 1 + self.listing.splits();
        if let Some(problem) = problem.filter(|_| !self.config.drop) {
            let error = match problem {
                Problem::Os(errno) => Error::os("getdents64", errno),
                Problem::Repeats => Error::new("getdents64", ErrorKind::Repeats),
            };
            self.output
                .errors
                .push_back(error.on(self.dir.known_path().as_ref()));
        }
        let room = self.config.max_entries.saturating_sub(self.stats.listed);
        if rows.len() as u64 >= room {
            rows.truncate(to_usize(room));
            self.listing.stop();
        }
        if rows.len() > 0 {
            self.stats.listed += rows.len() as u64;
            self.buffered.add(&rows);
            self.unsorted.entries += rows.len();
            self.unsorted.rows.push(rows);
        }
    }

    /// Stores sorted batches, to be queried if metadata was asked for.
    fn add_sorted(&mut self, batches: VecDeque<EntryTable>) {
        self.unsorted.sorting = false;
        for rows in batches {
            let number = self.queries.next;
            self.queries.next += rows.len() as u64;
            let batch = NumberedBatch { number, rows };
            if self.config.query.is_none() {
                self.add_complete(batch);
            } else {
                self.queries.waiting.push_back(batch);
            }
        }
    }

    /// Stores a batch whose metadata was queried, or a part of it.
    fn add_queried(&mut self, mut batch: NumberedBatch, part: BatchPart) {
        self.queries.running -= 1;
        self.queries.following &= part != BatchPart::Rest;
        if batch.rows.queried < batch.rows.len() {
            if part == BatchPart::First {
                self.queries.prefetched.push_back(batch);
                return;
            }
            // The time of the calling thread was used up. Workers share the rest.
            let rest = batch.rows.split_off();
            let mut number = batch.number + batch.rows.len() as u64;
            for rows in slices(rest, SLOW_BATCH / 2) {
                let next = number + rows.len() as u64;
                self.queries
                    .waiting
                    .push_back(NumberedBatch { number, rows });
                number = next;
            }
        }
        self.add_complete(batch);
    }

    /// Stores a complete batch.
    fn add_complete(&mut self, batch: NumberedBatch) {
        let NumberedBatch { number, rows } = batch;
        self.stats.done += rows.len() as u64;
        self.stats.failed += rows.failures();
        self.buffered.bytes += rows.attribute_bytes();
        if self.config.drop {
            self.buffered.remove(&rows);
        } else if let Some(by_name) = &mut self.by_name {
            by_name.rows.push(rows);
        } else if rows.len() > 0 {
            self.output.ready.insert(number, rows);
        }
    }

    fn add_sorted_by_name(&mut self, batches: VecDeque<EntryTable>) {
        if let Some(by_name) = &mut self.by_name {
            by_name.sorting = false;
            by_name.sorted = true;
        }
        self.output.ready = (0..).zip(batches).collect();
    }
}

impl Job for Progress {
    type Piece = Piece;
    type Done = Done;
    type Out = Batch;

    /// Chooses the next piece. Listing comes first while there is room: it creates work for others,
    /// and longer runs sort better. After that, listed entries are queried.
    fn pick(&mut self, slow: bool) -> Option<Piece> {
        let directory = self.directory.clone()?;
        let work = self
            .pick_listing()
            .or_else(|| self.pick_query(slow))
            .or_else(|| self.pick_sort(slow))
            .or_else(|| self.pick_sort_by_name())?;
        Some(Piece {
            directory,
            config: self.config.clone(),
            work,
        })
    }

    fn run(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        let Piece {
            directory,
            config,
            work,
        } = piece;
        Done(match work {
            Work::List(stream) => Outcome::Listed(stream.read()),
            Work::Split {
                position,
                buffer_size,
            } => Outcome::Split(Split::at(&directory, position, buffer_size)),
            Work::Sort {
                rows,
                stat_order,
                size,
            } => Outcome::Sorted(sorted(rows, stat_order, size)),
            Work::Query(mut batch, part) => {
                let until = match part {
                    // Stop after the first entry.
                    BatchPart::First => Some(Instant::now()),
                    BatchPart::Whole | BatchPart::Rest => until,
                };
                config.query.run(&directory, &mut batch.rows, until, over);
                Outcome::Queried(batch, part)
            }
            Work::SortByName(rows) => Outcome::SortedByName(by_name(&rows, BATCH)),
        })
    }

    /// The rest of a batch whose first entry was queried does not reach the device.
    fn is_timed(piece: &Piece) -> bool {
        !matches!(piece.work, Work::Query(_, BatchPart::Rest))
    }

    fn finish_piece(&mut self, done: Done) {
        match done.0 {
            Outcome::Listed(listed) => {
                let (rows, problem) = self.listing.add(listed);
                self.add_listed(rows, problem);
            }
            Outcome::Split(split) => {
                let (rows, problem) = self.listing.add_part(split);
                self.add_listed(rows, problem);
            }
            Outcome::Sorted(batches) => self.add_sorted(batches),
            Outcome::Queried(batch, part) => self.add_queried(batch, part),
            Outcome::SortedByName(batches) => self.add_sorted_by_name(batches),
        }
    }

    fn runnable(&self) -> usize {
        let list = if self.may_list() {
            self.plan.parts.saturating_sub(self.listers).max(1)
        } else {
            0
        };
        list + self.queries.waiting.len()
            + usize::from(self.queries.may_follow())
            + usize::from(self.may_sort())
            + usize::from(self.may_sort_by_name())
    }

    /// Returns the next batch, or the reason why the listing is incomplete. Errors come after all
    /// entries that were listed before.
    fn pop_ready(&mut self) -> Option<Result<Batch>> {
        if let Some(rows) = self.output.pop_batch() {
            self.buffered.remove(&rows);
            return Some(Ok(Batch::new(self.dir.clone(), rows)));
        }
        if self.has_ready() {
            return self.output.errors.pop_front().map(Err);
        }
        None
    }

    fn has_ready(&self) -> bool {
        let Output { ready, errors, .. } = &self.output;
        let has_error = ready.is_empty() && !errors.is_empty() && self.queries.is_empty();
        self.output.has_batch() || has_error
    }

    fn close(&mut self) {
        if self.is_complete() {
            self.directory = None;
        }
    }

    fn clear(&mut self) {
        self.directory = None;
        self.listing.stop();
        self.unsorted.rows.clear();
        self.queries.waiting.clear();
        self.queries.prefetched.clear();
        self.by_name = None;
        self.output.ready.clear();
        self.output.errors.clear();
    }

    fn max_workers(&self) -> usize {
        self.plan.workers
    }
}
