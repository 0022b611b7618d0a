//! How far the scan of one directory is: what is listed, gathered, asked about, and ready.
//!
//! ```text
//!  listing ─► gathered ─► deal (sort) ─► to ask ─► asking ─► ready ─► handed out
//!  │                                         └► scouted ─┘            │
//!  └──────────────── at most a window of entries and bytes ───────────┘
//! ```
//!
//! `pick` is the decision what a worker does next, and `take_in` what follows from it.

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
use crate::cast::to_usize;
use crate::error::{Error, ErrorKind, Result};
use crate::task_group::Job;

/// Entries of a batch: enough that handing it over costs nothing beside what it is asked.
const BATCH: usize = 128;
/// Entries of a batch where each question may wait for the device: many workers share a run.
const SLOW_BATCH: usize = 32;

/// What is wanted of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) questions: Questions,
    pub(crate) order: Order,
    /// Entries and bytes that may be between being listed and being handed out.
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    /// Entries after which the listing ends.
    pub(crate) at_most: u64,
    /// Results are counted and dropped.
    pub(crate) drop: bool,
}

/// What a scan has done so far.
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
    /// Until there is nothing more to be done with it.
    directory: Option<Arc<Directory>>,
    path: Option<Arc<Path>>,
    wish: Arc<Wish>,
    plan: Plan,
    listing: Listing,
    /// Workers that are listing now.
    listers: usize,
    /// Listed, not yet dealt into batches.
    gathered: Vec<Rows>,
    gathered_entries: usize,
    /// Somebody is dealing.
    dealing: bool,
    to_ask: VecDeque<Numbered>,
    asking: usize,
    /// Batches whose first entry has been asked about, so that the block of the others is cached.
    scouted: VecDeque<Numbered>,
    /// Somebody is asking about the rest of one.
    following: bool,
    /// By the number of their first entry.
    ready: BTreeMap<u64, Rows>,
    /// Of a scan by name: everything, before it is sorted.
    whole: Option<Vec<Rows>>,
    sorting: bool,
    /// The number of the next entry to be dealt, and to be handed out.
    dealt: u64,
    handed: u64,
    /// Entries and bytes in the window.
    entries: usize,
    bytes: usize,
    errors: VecDeque<Error>,
    counts: Counts,
    /// Whether whoever has other directories as well lets this one list on, and cut.
    leave: Leave,
}

/// What a walk allows each of its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leave {
    /// There is room for more entries.
    pub(crate) list: bool,
    /// There are descriptors for more parts.
    pub(crate) cut: bool,
}

/// A batch and the number of its first entry, in the order in which they are handed out.
#[derive(Debug)]
pub(crate) struct Numbered {
    number: u64,
    rows: Rows,
}

/// Something for a worker to do.
#[derive(Debug)]
pub(crate) struct Piece {
    directory: Arc<Directory>,
    wish: Arc<Wish>,
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

/// How much of a batch is asked about at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Whole,
    /// Its first entry, which brings the block.
    First,
    /// The others, after that.
    Rest,
}

/// What came of it.
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
    pub(crate) fn new(directory: Arc<Directory>, wish: Arc<Wish>, plan: Plan) -> Progress {
        let by_name = wish.order == Order::Name;
        let window = if by_name {
            usize::MAX
        } else {
            wish.entries.min(wish.bytes / 64)
        };
        Progress {
            listing: Listing::new(&directory, plan.parts, window),
            path: directory.path().cloned(),
            directory: Some(directory),
            wish,
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

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        1 + self.listing.parts()
    }

    /// Entries that are listed and not handed out.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// Whether everything has been handed out.
    pub(crate) fn is_over(&self) -> bool {
        self.all_done() && !self.has_out()
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// What to do next. Listing comes first, as long as there is room: it is what gives the others
    /// something to do, and a run that is longer sorts better. Then what is listed is asked about.
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
            self.gathered_entries = 0;
            What::Deal {
                gathered: std::mem::take(&mut self.gathered),
                stat_order: self.plan.stat_order,
                size: if slow { SLOW_BATCH } else { BATCH },
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
            wish: self.wish.clone(),
            what,
        })
    }

    /// How many pieces could be begun now, roughly; 0 exactly if there is none.
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

    /// The next batch that is to be asked about, and how much of it.
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

    /// Whether somebody is wanted for the rest of a batch.
    fn may_follow(&self) -> bool {
        !self.following && !self.scouted.is_empty()
    }

    /// Whether it says something of the device that a piece slept, or did not. What follows a scout
    /// does not meet it.
    pub(crate) fn tells(piece: &Piece) -> bool {
        !matches!(piece.what, What::Ask(_, Share::Rest))
    }

    /// Whether there is something to list and room for it. What workers that are listing may bring is
    /// reckoned with; a window that is smaller than one step takes one at a time.
    fn may_list(&self) -> bool {
        if !self.leave.list || !self.listing.has_step() || self.gathered_entries >= self.run() {
            return false;
        }
        if self.whole.is_some() {
            return true;
        }
        let coming = (self.listers + 1) * self.listing.step();
        let fits = self.entries + coming <= self.wish.entries
            && self.bytes + coming * self.entry_bytes() <= self.wish.bytes;
        fits || (self.listers == 0 && self.entries == 0)
    }

    /// Bytes that an entry with a name of ordinary length takes.
    fn entry_bytes(&self) -> usize {
        Rows::bytes_of_an_entry(self.has_metadata())
    }

    fn has_metadata(&self) -> bool {
        self.wish.questions.fields.is_some()
    }

    /// Entries that are sorted at a time: half a window, so that the other half is listed meanwhile.
    fn run(&self) -> usize {
        if self.whole.is_some() {
            usize::MAX
        } else {
            (self.wish.entries / 2).max(1)
        }
    }

    /// Whether to sort what is gathered: when it is a run, or when waiting would bring no more.
    fn may_deal(&self) -> bool {
        if self.dealing || self.gathered.is_empty() {
            return false;
        }
        let no_more = self.listers == 0 && !self.may_list();
        self.plan.stat_order == StatOrder::Listed || self.gathered_entries >= self.run() || no_more
    }

    /// Whether everything is there that is to be sorted by name.
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

    /// Does a piece.
    pub(crate) fn carry_out(piece: Piece, until: Option<Instant>, over: &dyn Fn() -> bool) -> Done {
        let Piece {
            directory,
            wish,
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
                    // The time has come after the first.
                    Share::First => Some(Instant::now()),
                    Share::Whole | Share::Rest => until,
                };
                wish.questions.ask(&directory, &mut batch.rows, until, over);
                Outcome::Asked(batch, share)
            }
            What::Sort { whole } => Outcome::Sorted(by_name(&whole, BATCH)),
        })
    }

    /// Takes in what a piece came to.
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
                    if self.wish.questions.is_none() {
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
                    // A caller that had no more time: workers share the rest.
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

    /// Takes in names.
    fn listed(&mut self, mut rows: Rows, problem: Option<Problem>) {
        self.listers -= 1;
        self.counts.cuts = self.listing.cuts();
        if let Some(problem) = problem.filter(|_| !self.wish.drop) {
            let error = match problem {
                Problem::Os(errno) => Error::os("getdents64", errno),
                Problem::Repeats => Error::new("getdents64", ErrorKind::Repeats),
            };
            self.errors.push_back(error.on(self.path.as_ref()));
        }
        let room = self.wish.at_most.saturating_sub(self.counts.listed);
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

    /// Takes in a batch that nothing more is to be asked about.
    fn asked(&mut self, batch: Numbered) {
        let Numbered { number, rows } = batch;
        self.counts.done += rows.len() as u64;
        self.counts.failed += rows.failures();
        self.bytes += rows.attribute_bytes();
        if self.wish.drop {
            self.entries -= rows.len();
            self.bytes = self.bytes.saturating_sub(rows.bytes(self.has_metadata()));
        } else if let Some(whole) = &mut self.whole {
            whole.push(rows);
        } else if rows.len() > 0 {
            self.ready.insert(number, rows);
        }
    }

    /// Something to hand out: a batch, or why the listing is not whole.
    pub(crate) fn hand_out(&mut self) -> Option<Result<Batch>> {
        if let Some(rows) = self.next_ready() {
            self.handed += rows.len() as u64;
            self.entries = self.entries.saturating_sub(rows.len());
            self.bytes = self.bytes.saturating_sub(rows.bytes(self.has_metadata()));
            return Some(Ok(Batch::new(self.path.clone(), rows)));
        }
        // After what was listed before it.
        if self.ready.is_empty() && self.none_to_ask() {
            return self.errors.pop_front().map(Err);
        }
        None
    }

    /// Whether nothing that is dealt has yet to be asked about.
    fn none_to_ask(&self) -> bool {
        self.to_ask.is_empty() && self.scouted.is_empty() && self.asking == 0
    }

    fn next_ready(&mut self) -> Option<Rows> {
        let first = self.ready.first_entry()?;
        if self.wish.order == Order::Inode && *first.key() != self.handed {
            return None;
        }
        Some(first.remove())
    }

    pub(crate) fn has_out(&self) -> bool {
        match self.ready.first_key_value() {
            Some((number, _)) => self.wish.order != Order::Inode || *number == self.handed,
            None => !self.errors.is_empty() && self.none_to_ask(),
        }
    }

    /// Closes the directory if all that is left is to be handed out.
    pub(crate) fn close(&mut self) {
        if self.all_done() {
            self.directory = None;
        }
    }

    fn all_done(&self) -> bool {
        self.all_asked() && !self.may_sort() && !self.sorting
    }

    /// Nobody wants the rest.
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
