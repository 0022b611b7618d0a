//! The state of the scan of one directory: entries that are listed, gathered, asked about, and ready.
//!
//! ```text
//!  listing ─► gathered ─► deal (sort) ─► to ask ─► asking ─► ready ─► handed out
//!  │                                         └► scouted ─┘            │
//!  └──────────────── at most a window of entries and bytes ───────────┘
//! ```
//!
//! `pick` decides the next piece of work for a worker. `take_in` applies its result.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::directory::Directory;
use super::entry::{Batch, Rows};
use super::list::{Cut, Listed, Listing, Problem, Step, Stream};
use super::metadata::Questions;
use super::order::{Order, StatOrder, by_name, deal, slices};
use super::plan::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::cast::to_usize;
use crate::task_group::Job;

/// Entries of a batch. With so many, the cost of handing a batch over is small beside that of its queries.
const BATCH: usize = 128;
/// Entries of a batch if each query may wait for the device, so that many workers share a run.
const SLOW_BATCH: usize = 32;

/// The options of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) questions: Questions,
    pub(crate) order: Order,
    /// The limits for entries and bytes that are listed and not yet returned.
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    /// The number of entries after which the listing ends.
    pub(crate) at_most: u64,
    /// If true, results are counted and dropped.
    pub(crate) drop: bool,
}

/// The work that a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) listed: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cuts: u64,
}

impl Counts {
    pub(crate) fn plus(self, other: Counts) -> Counts {
        Counts {
            listed: self.listed + other.listed,
            done: self.done + other.done,
            failed: self.failed + other.failed,
            cuts: self.cuts + other.cuts,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Progress {
    /// `None` when no work remains for the directory.
    directory: Option<Arc<Directory>>,
    path: Option<Arc<Path>>,
    config: Arc<Config>,
    plan: Plan,
    listing: Listing,
    /// The number of workers that are listing.
    listers: usize,
    /// Entries that are listed and not yet divided into batches.
    gathered: Vec<Rows>,
    gathered_entries: usize,
    /// True while a worker divides entries into batches.
    dealing: bool,
    to_ask: VecDeque<Numbered>,
    asking: usize,
    /// Batches whose first entry has been asked about, so that the block of the others is cached.
    scouted: VecDeque<Numbered>,
    /// True while a worker asks about the rest of such a batch.
    following: bool,
    /// Complete batches, by the number of their first entry.
    ready: BTreeMap<u64, Rows>,
    /// For a scan by name: all entries, before they are sorted.
    whole: Option<Vec<Rows>>,
    sorting: bool,
    /// The number of the next entry to be put into a batch, and of the next one to be returned.
    dealt: u64,
    handed: u64,
    /// Entries and bytes in the window.
    entries: usize,
    bytes: usize,
    errors: VecDeque<Error>,
    counts: Counts,
    /// The permissions given by a walk, which has other directories as well.
    leave: Leave,
}

/// The permissions that a walk gives to each of its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    /// The window has room for more entries.
    pub(crate) list: bool,
    /// Descriptors are available for more parts.
    pub(crate) cut: bool,
}

/// A batch and the number of its first entry, in the order of return.
#[derive(Debug)]
pub(crate) struct Numbered {
    number: u64,
    rows: Rows,
}

/// A piece of work for a worker.
#[derive(Debug)]
pub(crate) struct Piece {
    directory: Arc<Directory>,
    config: Arc<Config>,
    what: What,
}

#[derive(Debug)]
enum What {
    List(Stream),
    Cut {
        guess: u64,
        room: usize,
    },
    Deal {
        gathered: Vec<Rows>,
        stat_order: StatOrder,
        size: usize,
    },
    Ask(Numbered, Share),
    Sort {
        whole: Vec<Rows>,
    },
}

/// The part of a batch that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Whole,
    /// Its first entry, whose query loads the block.
    First,
    /// All other entries, after the first.
    Rest,
}

/// The result of a piece.
#[derive(Debug)]
pub(crate) struct Done(Outcome);

#[derive(Debug)]
enum Outcome {
    Listed(Listed),
    Cut(Cut),
    Dealt(VecDeque<Rows>),
    Asked(Numbered, Share),
    Sorted(VecDeque<Rows>),
}

impl Progress {
    pub(crate) fn new(directory: Arc<Directory>, config: Arc<Config>, plan: Plan) -> Progress {
        let by_name = config.order == Order::Name;
        let window = if by_name {
            usize::MAX
        } else {
            config.entries.min(config.bytes / 64)
        };
        Progress {
            listing: Listing::new(&directory, plan.parts, window),
            path: directory.path().cloned(),
            directory: Some(directory),
            config,
            plan,
            listers: 0,
            gathered: Vec::new(),
            gathered_entries: 0,
            dealing: false,
            to_ask: VecDeque::new(),
            asking: 0,
            scouted: VecDeque::new(),
            following: false,
            ready: BTreeMap::new(),
            whole: by_name.then(Vec::new),
            sorting: false,
            dealt: 0,
            handed: 0,
            entries: 0,
            bytes: 0,
            errors: VecDeque::new(),
            counts: Counts::default(),
            leave: Leave {
                list: true,
                cut: true,
            },
        }
    }

    pub(crate) fn give_leave(&mut self, leave: Leave) {
        self.leave = leave;
        self.listing.may_cut(leave.cut);
    }

    /// The number of open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        1 + self.listing.parts()
    }

    /// The number of entries that are listed and not yet returned.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Returns true if everything has been returned.
    pub(crate) fn is_over(&self) -> bool {
        self.all_done() && !self.has_out()
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Chooses the next piece. Listing comes first while there is room: it creates work for others, and
    /// longer runs sort better. After that, listed entries are asked about.
    pub(crate) fn pick(&mut self, slow: bool) -> Option<Piece> {
        let directory = self.directory.clone()?;
        let what = if self.may_list() {
            let step = self.listing.pick()?;
            self.listers += 1;
            match step {
                Step::List(stream) => What::List(stream),
                Step::Cut(guess) => What::Cut {
                    guess,
                    room: self.listing.room(),
                },
            }
        } else if let Some((batch, share)) = self.next_to_ask(slow) {
            self.asking += 1;
            self.following |= share == Share::Rest;
            What::Ask(batch, share)
        } else if self.may_deal() {
            self.dealing = true;
            let size = self.batch_size(slow);
            self.gathered_entries = 0;
            What::Deal {
                gathered: std::mem::take(&mut self.gathered),
                stat_order: self.plan.stat_order,
                size,
            }
        } else if self.may_sort() {
            self.sorting = true;
            What::Sort {
                whole: self.whole.take()?,
            }
        } else {
            return None;
        };
        Some(Piece {
            directory,
            config: self.config.clone(),
            what,
        })
    }

    /// The approximate number of pieces that could start now. It is 0 if and only if there is none.
    pub(crate) fn waiting(&self) -> usize {
        let list = if self.may_list() {
            self.plan.parts.saturating_sub(self.listers).max(1)
        } else {
            0
        };
        list + self.to_ask.len()
            + usize::from(self.may_follow())
            + usize::from(self.may_deal())
            + usize::from(self.may_sort())
    }

    /// The next batch to ask about, and the part of it.
    fn next_to_ask(&mut self, slow: bool) -> Option<(Numbered, Share)> {
        if self.may_follow() {
            return Some((self.scouted.pop_front()?, Share::Rest));
        }
        let share = if self.plan.prefetch_first && slow {
            Share::First
        } else {
            Share::Whole
        };
        Some((self.to_ask.pop_front()?, share))
    }

    /// Returns true if a worker may ask about the rest of a batch.
    fn may_follow(&self) -> bool {
        !self.following && !self.scouted.is_empty()
    }

    /// Returns true if a piece shows that the device is slow or fast. The rest of a batch whose first entry
    /// was asked about does not reach the device.
    pub(crate) fn tells(piece: &Piece) -> bool {
        !matches!(piece.what, What::Ask(_, Share::Rest))
    }

    /// Returns true if there is something to list and room for it. The entries that listing workers may
    /// return are counted. If the window is smaller than one step, one step runs at a time.
    fn may_list(&self) -> bool {
        if !self.leave.list || !self.listing.has_step() || self.gathered_entries >= self.run() {
            return false;
        }
        if self.whole.is_some() {
            return true;
        }
        let coming = (self.listers + 1) * self.listing.step();
        let fits = self.entries + coming <= self.config.entries
            && self.bytes + coming * self.entry_bytes() <= self.config.bytes;
        fits || (self.listers == 0 && self.entries == 0)
    }

    /// The bytes that an entry with a name of ordinary length takes.
    fn entry_bytes(&self) -> usize {
        Rows::bytes_of_an_entry(self.has_metadata())
    }

    fn has_metadata(&self) -> bool {
        self.config.questions.fields.is_some()
    }

    /// The number of entries that are sorted together: half a window, so that the other half can be listed
    /// meanwhile.
    fn run(&self) -> usize {
        if self.whole.is_some() {
            usize::MAX
        } else {
            (self.config.entries / 2).max(1)
        }
    }

    /// Returns true if gathered entries are to be sorted now: they are a whole run, or no more can be
    /// listed.
    fn may_deal(&self) -> bool {
        if self.dealing || self.gathered.is_empty() {
            return false;
        }
        let no_more = self.listers == 0 && !self.may_list();
        self.plan.stat_order == StatOrder::Listed || self.gathered_entries >= self.run() || no_more
    }

    /// The number of entries of a batch. The device may prove slow later, so that a small directory has a batch for each of
    /// many workers, too.
    fn batch_size(&self, slow: bool) -> usize {
        match slow {
            true => SLOW_BATCH,
            false => (self.gathered_entries / self.plan.workers).clamp(SLOW_BATCH, BATCH),
        }
    }

    /// Returns true if everything that is to be sorted by name is complete.
    fn may_sort(&self) -> bool {
        self.whole.is_some() && self.all_asked()
    }

    fn all_asked(&self) -> bool {
        self.listing.is_over()
            && self.listers == 0
            && self.gathered.is_empty()
            && !self.dealing
            && self.none_to_ask()
    }

    /// Carries out a piece.
    pub(crate) fn carry_out(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        let Piece {
            directory,
            config,
            what,
        } = piece;
        Done(match what {
            What::List(stream) => Outcome::Listed(stream.read()),
            What::Cut { guess, room } => Outcome::Cut(Cut::at(&directory, guess, room)),
            What::Deal {
                gathered,
                stat_order,
                size,
            } => Outcome::Dealt(deal(gathered, stat_order, size)),
            What::Ask(mut batch, share) => {
                let until = match share {
                    // Stop after the first entry.
                    Share::First => Some(Instant::now()),
                    Share::Whole | Share::Rest => until,
                };
                config
                    .questions
                    .ask(&directory, &mut batch.rows, until, over);
                Outcome::Asked(batch, share)
            }
            What::Sort { whole } => Outcome::Sorted(by_name(&whole, BATCH)),
        })
    }

    /// Applies the result of a piece.
    pub(crate) fn take_in(&mut self, done: Done) {
        match done.0 {
            Outcome::Listed(listed) => {
                let (rows, problem) = self.listing.take_in(listed);
                self.listed(rows, problem);
            }
            Outcome::Cut(cut) => {
                let (rows, problem) = self.listing.take_in_cut(cut);
                self.listed(rows, problem);
            }
            Outcome::Dealt(batches) => {
                self.dealing = false;
                for rows in batches {
                    let number = self.dealt;
                    self.dealt += rows.len() as u64;
                    let batch = Numbered { number, rows };
                    if self.config.questions.is_none() {
                        self.asked(batch);
                    } else {
                        self.to_ask.push_back(batch);
                    }
                }
            }
            Outcome::Asked(mut batch, share) => {
                self.asking -= 1;
                self.following &= share != Share::Rest;
                if batch.rows.asked < batch.rows.len() {
                    if share == Share::First {
                        self.scouted.push_back(batch);
                        return;
                    }
                    // The time of the calling thread was used up. Workers share the rest.
                    let rest = batch.rows.split_off();
                    let mut number = batch.number + batch.rows.len() as u64;
                    for rows in slices(rest, SLOW_BATCH / 2) {
                        let next = number + rows.len() as u64;
                        self.to_ask.push_back(Numbered { number, rows });
                        number = next;
                    }
                }
                self.asked(batch);
            }
            Outcome::Sorted(batches) => {
                self.sorting = false;
                for rows in batches {
                    self.ready.insert(self.dealt, rows);
                    self.dealt += 1;
                }
            }
        }
    }

    /// Takes these entries as the whole listing.
    pub(super) fn list(&mut self, rows: Vec<Rows>) {
        for rows in rows {
            self.listers += 1;
            self.listed(rows, None);
        }
        self.listing.stop();
    }

    /// Stores listed names.
    fn listed(&mut self, mut rows: Rows, problem: Option<Problem>) {
        self.listers -= 1;
        self.counts.cuts = self.listing.cuts();
        if let Some(problem) = problem.filter(|_| !self.config.drop) {
            let error = match problem {
                Problem::Os(errno) => Error::os("getdents64", errno),
                Problem::Repeats => Error::new("getdents64", ErrorKind::Repeats),
            };
            self.errors.push_back(error.on(self.path.as_ref()));
        }
        let room = self.config.at_most.saturating_sub(self.counts.listed);
        if rows.len() as u64 >= room {
            rows.truncate(to_usize(room));
            self.listing.stop();
        }
        if rows.len() > 0 {
            self.counts.listed += rows.len() as u64;
            self.entries += rows.len();
            self.bytes += rows.bytes(self.has_metadata());
            self.gathered_entries += rows.len();
            self.gathered.push(rows);
        }
    }

    /// Stores a complete batch.
    fn asked(&mut self, batch: Numbered) {
        let Numbered { number, rows } = batch;
        self.counts.done += rows.len() as u64;
        self.counts.failed += rows.failures();
        self.bytes += rows.attribute_bytes();
        if self.config.drop {
            self.entries -= rows.len();
            self.bytes = self.bytes.saturating_sub(rows.bytes(self.has_metadata()));
        } else if let Some(whole) = &mut self.whole {
            whole.push(rows);
        } else if rows.len() > 0 {
            self.ready.insert(number, rows);
        }
    }

    /// Returns the next result: a batch, or the reason why the listing is incomplete.
    pub(crate) fn hand_out(&mut self) -> Option<Result<Batch>> {
        if let Some(rows) = self.next_ready() {
            self.handed += rows.len() as u64;
            self.entries = self.entries.saturating_sub(rows.len());
            self.bytes = self.bytes.saturating_sub(rows.bytes(self.has_metadata()));
            return Some(Ok(Batch::new(self.path.clone(), rows)));
        }
        // Errors come after all entries that were listed before.
        if self.ready.is_empty() && self.none_to_ask() {
            return self.errors.pop_front().map(Err);
        }
        None
    }

    /// Returns true if every batch has been asked about.
    fn none_to_ask(&self) -> bool {
        self.to_ask.is_empty() && self.scouted.is_empty() && self.asking == 0
    }

    fn next_ready(&mut self) -> Option<Rows> {
        let first = self.ready.first_entry()?;
        if self.config.order == Order::Inode && *first.key() != self.handed {
            return None;
        }
        Some(first.remove())
    }

    pub(crate) fn has_out(&self) -> bool {
        match self.ready.first_key_value() {
            Some((number, _)) => self.config.order != Order::Inode || *number == self.handed,
            None => !self.errors.is_empty() && self.none_to_ask(),
        }
    }

    /// Closes the directory if no work remains except returning results.
    pub(crate) fn close(&mut self) {
        if self.all_done() {
            self.directory = None;
        }
    }

    fn all_done(&self) -> bool {
        self.all_asked() && !self.may_sort() && !self.sorting
    }

    /// Drops all work and results. Called on cancellation.
    pub(crate) fn give_up(&mut self) {
        self.directory = None;
        self.listing.stop();
        self.gathered.clear();
        self.to_ask.clear();
        self.scouted.clear();
        self.ready.clear();
        self.whole = None;
        self.errors.clear();
    }
}

impl Job for Progress {
    type Piece = Piece;
    type Done = Done;
    type Out = Batch;

    fn pick(&mut self, slow: bool) -> Option<Piece> {
        self.pick(slow)
    }

    fn carry_out(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        Progress::carry_out(piece, until, over)
    }

    fn tells(piece: &Piece) -> bool {
        Progress::tells(piece)
    }

    fn take_in(&mut self, done: Done) {
        self.take_in(done);
    }

    fn waiting(&self) -> usize {
        self.waiting()
    }

    fn hand_out(&mut self) -> Option<Result<Batch>> {
        self.hand_out()
    }

    fn has_out(&self) -> bool {
        self.has_out()
    }

    fn close(&mut self) {
        self.close();
    }

    fn give_up(&mut self) {
        self.give_up();
    }

    fn most(&self) -> usize {
        self.plan().workers
    }
}
