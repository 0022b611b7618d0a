//! The keeper: decides which files are to be resident, and reads and locks them. It has a thread of
//! its own, because files may be on devices that do not answer.
//!
//! ```text
//!  changed names ─► look ──┐
//!  every minute ─► sweep ──┼─► plan: paths in order, within the budget ─► work: a batch of missing files
//!  pressure, memory ───────┘                                                 └─► read, look again, lock
//! ```

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nowait::residency::page_size;
use nowait_page_cache::{
    Allowed, Budget, FileRef, Limits, OpenError, Prefetcher, PseudoDevices, Request, Selection,
    Stamp, engine, examine, proc,
};
use rustix::fs::Advice;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::entry::{Entry, Look, in_pages};
use super::events::{EventQueue, Events};
use super::lock::{self, Lock};
use super::pressure::Pressure;
use super::report::{Reports, WhileReading};
use super::root::{Changed, Context, Root};
use super::settings::Settings;
use super::status::{PathStatus, Status};
use super::watch::{Purpose, Watches};
use crate::name::plural;
use crate::size::Size;

/// The most bytes that are read or locked between two looks at the events: at first, and the least and the most later.
const FIRST_BATCH: u64 = 4 << 20;
const MIN_BATCH: u64 = 1 << 20;
const MAX_BATCH: u64 = 64 << 20;
const MAX_FILES: usize = 1000;

/// A batch that takes longer than this is followed by a smaller one, and one that is shorter than a
/// quarter of it by a larger one.
const BATCH_TIME: Duration = Duration::from_millis(400);

/// Changes are collected for this time, because they often come together; for longer if it takes long
/// to plan again.
const COLLECT: Duration = Duration::from_millis(100);
const MAX_COLLECT: Duration = Duration::from_millis(500);

/// The rate in bytes per second at which a sweep reads, unless another one is given.
const SWEEP_RATE: u64 = 100 << 20;

/// The most files that a step of a sweep looks at.
const STEP_FILES: usize = 500;

/// A step that took a second of processor time is followed by a pause of this many seconds at least.
const IDLE_SHARE: u32 = 300;

/// The same for looks at all files after events were lost.
const OVERFLOW_PAUSE: u32 = 20;

/// The interval at which the available memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);

/// The window of the kernel's trigger.
const PRESSURE_WINDOW: Duration = Duration::from_secs(2);

/// The shortest time between two writes of the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The operations in flight of a batch.
const DEPTH: u32 = 32;

/// A file that is to be read or locked.
struct Target {
    root: usize,
    directory: Arc<Path>,
    name: OsString,
    /// The bytes before it were read already.
    from: u64,
}

/// The place of a sweep that goes on later.
#[derive(Default)]
struct Sweep {
    began: Option<Instant>,
    /// The number of the path.
    root: usize,
    /// The last file of the path that was looked at; `None` before the path is listed.
    after: Option<(Arc<Path>, OsString)>,
}

/// The files, and the work on them.
pub struct Keeper {
    settings: Settings,
    queue: Arc<EventQueue>,
    /// The kernel reports memory pressure.
    pressure_watched: bool,
    reports: Reports,
    roots: Vec<Root>,
    watches: Watches,
    budget: Budget,
    /// The bytes that may be kept, by the budget and by the pressure.
    limit: u64,
    pressure: Pressure,
    locking: lock::Limits,
    /// All files fit into the limit, and take this much of it in whole pages.
    fits: Option<u64>,
    plan_time: Duration,
    /// Files that have changed, and the other files that are to be read or locked, in their order.
    urgent: VecDeque<Target>,
    todo: VecDeque<Target>,
    /// The files of `todo` are those that a sweep has found.
    by_sweep: bool,
    batch: u64,
    /// The time before which nothing is read, because of the rate.
    paced: Instant,
    last_read: Instant,
    started: Instant,
    sweep: Sweep,
    /// The beginning of the last complete sweep.
    swept: Instant,
    /// The time at which the next sweep begins, or goes on.
    next_sweep: Instant,
    /// Events were lost: all files are looked at, at this time.
    overflowed: Option<Instant>,
    /// The processor time of the last look at all files.
    look_cost: Duration,
    next_memory: Instant,
    swapped: Option<u64>,
    status_due: Option<Instant>,
    status_written: Instant,
}

impl Keeper {
    /// Reads the list of paths, and looks at all files once.
    ///
    /// # Errors
    /// A message, if none of the paths can be kept.
    pub fn new(
        settings: Settings,
        watches: Watches,
        queue: Arc<EventQueue>,
        pressure_watched: bool,
    ) -> Result<Keeper, String> {
        let now = Instant::now();
        let reports = Reports::default();
        let paths = settings.paths(&reports)?;
        let mut keeper = Keeper {
            budget: Budget::new(settings.budget),
            locking: lock::Limits::here(),
            reports,
            roots: Vec::new(),
            watches,
            limit: 0,
            pressure: Pressure::new(),
            fits: None,
            plan_time: Duration::ZERO,
            urgent: VecDeque::new(),
            todo: VecDeque::new(),
            by_sweep: false,
            batch: FIRST_BATCH,
            paced: now,
            // Nothing was read so far.
            last_read: now - PRESSURE_WINDOW,
            started: now,
            sweep: Sweep::default(),
            swept: now,
            next_sweep: now,
            overflowed: None,
            look_cost: Duration::ZERO,
            next_memory: now,
            swapped: None,
            status_due: Some(now),
            status_written: now,
            settings,
            queue,
            pressure_watched,
        };
        keeper.set_paths(paths);
        match keeper.look_at_all() {
            0 => Err("none of the paths can be kept".into()),
            _ => {
                keeper.write_status();
                super::notify::ready();
                Ok(keeper)
            }
        }
    }

    fn set_paths(&mut self, paths: Vec<PathBuf>) {
        self.watches.clear();
        self.urgent.clear();
        self.todo.clear();
        let roots = paths.into_iter().enumerate();
        // The files of paths that stay remain locked.
        let mut old = std::mem::take(&mut self.roots);
        self.roots = roots
            .map(|(number, path)| {
                let known = old.iter().position(|root| root.path == path);
                match known {
                    Some(at) => old.swap_remove(at).renumbered(number),
                    None => Root::new(path, number),
                }
            })
            .collect();
    }

    /// Keeps the files until a stop is requested.
    pub fn run(mut self) {
        loop {
            let events = self.queue.take(self.wait());
            if events.stop {
                return;
            }
            self.handle(events);
            let now = Instant::now();
            if self.overflowed.is_some_and(|at| now >= at) {
                self.overflowed = None;
                self.look_at_all();
            }
            if now >= self.next_sweep && !self.has_work() {
                self.sweep();
            }
            if now >= self.next_memory {
                self.look_at_memory(now);
            }
            if now >= self.paced {
                self.work();
            }
            self.write_status();
        }
    }

    /// The time until something is to be done.
    fn wait(&self) -> Duration {
        let times = [
            match self.has_work() {
                true => Some(self.paced),
                false => Some(self.next_sweep),
            },
            Some(self.next_memory),
            self.overflowed,
            self.status_due,
        ];
        let next = times.into_iter().flatten().min();
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    fn has_work(&self) -> bool {
        !self.urgent.is_empty() || !self.todo.is_empty()
    }

    fn handle(&mut self, mut events: Events) {
        if !events.changed.is_empty() || events.overflowed {
            // The rest of the changes comes soon.
            std::thread::sleep(COLLECT.max(self.plan_time * 10).min(MAX_COLLECT));
            events.add(self.queue.take(Duration::ZERO));
        }
        if events.stop {
            self.queue.post(|events| events.stop = true);
            return;
        }
        if events.pressure {
            self.handle_pressure();
        }
        for watch in events.ended {
            self.watches.forget(watch);
        }
        if events.reload {
            self.reload();
        } else if events.overflowed {
            let at = self.swept + self.look_cost * OVERFLOW_PAUSE;
            self.overflowed.get_or_insert(at);
        }
        if !events.changed.is_empty() {
            self.look(events.changed);
        }
    }

    /// SIGHUP: reads the list of paths again, and looks at all files.
    fn reload(&mut self) {
        self.reports.forget();
        match self.settings.paths(&self.reports) {
            Ok(paths) => self.set_paths(paths),
            Err(why) => self
                .reports
                .say(format_args!("{why}; the paths stay as they were")),
        }
        self.look_at_all();
        self.by_sweep = false;
        super::notify::ready();
    }

    /// Looks at names that have changed.
    fn look(&mut self, changed: HashSet<(i32, OsString)>) {
        let mut names = Vec::new();
        let mut scans = HashSet::new();
        for (watch, name) in changed {
            for purpose in self.watches.purposes(watch) {
                match purpose {
                    Purpose::Way(root, at) if *at == name => _ = scans.insert(*root),
                    Purpose::Way(..) => {}
                    Purpose::Tree(root, directory) => {
                        names.push((*root, directory.clone(), name.clone()));
                    }
                }
            }
        }
        if names.is_empty() && scans.is_empty() {
            return;
        }
        let pseudo = PseudoDevices::of("self");
        let mut context = Context {
            watches: &mut self.watches,
            pseudo: &pseudo,
            reporter: &self.reports,
            one_file_system: self.settings.one_file_system,
        };
        let mut found: Vec<Target> = Vec::new();
        let mut gone = false;
        for (number, directory, name) in names {
            let Some(root) = self.roots.get_mut(number) else {
                continue;
            };
            match root.look(&directory, &name, &mut context) {
                Changed::Nothing => {}
                Changed::Gone => gone = true,
                Changed::File => found.push(Target {
                    root: number,
                    directory: directory.into(),
                    name,
                    from: 0,
                }),
                Changed::Tree(path) => found.extend(targets(number, root, &path)),
            }
        }
        for number in scans {
            let root = &mut self.roots[number];
            root.scan(&mut context);
            gone = true;
            let path = root.directories.keys().next().cloned();
            found.extend(path.iter().flat_map(|path| targets(number, root, path)));
        }
        let resized = self.examine(&found);
        if gone || resized {
            self.fits = None;
        }
        for target in &found {
            if let Some(entry) = self.entry(target) {
                entry.tried = false;
                // The bytes may be other ones now.
                entry.lock = None;
            }
        }
        if self.fits.is_none() {
            self.plan();
        }
        self.urgent.extend(found);
        self.changed_status();
        self.roots.iter_mut().for_each(Root::close);
    }

    fn entry(&mut self, target: &Target) -> Option<&mut Entry> {
        let root = self.roots.get_mut(target.root)?;
        root.entry_mut(&target.directory, &target.name)
    }

    /// Looks at these files. Returns true if the size of one is another one.
    fn examine(&mut self, targets: &[Target]) -> bool {
        let numbers: HashSet<usize> = targets.iter().map(|target| target.root).collect();
        numbers
            .into_iter()
            .for_each(|number| self.roots[number].reopen());
        let files: Vec<FileRef> = targets
            .iter()
            .map(|target| self.roots[target.root].file(&target.directory, &target.name))
            .collect();
        let looks = looks(files.into_iter(), &self.reports);
        let mut resized = false;
        for (target, look) in targets.iter().zip(looks) {
            if let Some(entry) = self.entry(target) {
                resized |= entry.apply(look);
            }
            self.look_at_part(target);
        }
        resized
    }

    /// Looks again at a file of which only the beginning is planned.
    fn look_at_part(&mut self, target: &Target) {
        let Some(entry) = self.entry(target) else {
            return;
        };
        let planned = entry.planned;
        if planned == 0 || planned >= entry.size || entry.unknown.is_some() {
            return;
        }
        let file = self.roots[target.root].file(&target.directory, &target.name);
        let look = file
            .open()
            .and_then(|(file, stat)| Look::at(&file, &stat, planned));
        if let (
            Some(entry),
            Ok(Look {
                resident: Ok(resident),
                ..
            }),
        ) = (self.entry(target), look)
        {
            entry.resident = resident;
            entry.note_full();
        }
    }

    /// Looks at all paths and files at once. Returns the number of paths that can be kept.
    fn look_at_all(&mut self) -> usize {
        let began = Instant::now();
        let cost = processor_time();
        let good = (0..self.roots.len()).filter(|number| self.scan(*number));
        let good = good.count();
        self.report_unwatched();
        let files = self.roots.iter().flat_map(|root| {
            let entries = root.entries();
            entries.map(|(directory, name, _)| root.file(directory, name))
        });
        let looks = looks(files, &self.reports);
        let entries = self.roots.iter_mut().flat_map(Root::entries_mut);
        for ((_, _, entry), look) in entries.zip(looks) {
            entry.apply(look);
            entry.tried = false;
        }
        self.report_unknown();
        self.plan();
        self.roots.iter_mut().for_each(Root::close);
        self.sweep = Sweep::default();
        self.swept = began;
        self.look_cost = processor_time().saturating_sub(cost);
        self.next_sweep = began + self.settings.interval;
        self.changed_status();
        good
    }

    /// Looks where a path leads, and lists its directories. Returns false if it cannot be kept.
    fn scan(&mut self, number: usize) -> bool {
        let pseudo = PseudoDevices::of("self");
        let mut context = Context {
            watches: &mut self.watches,
            pseudo: &pseudo,
            reporter: &self.reports,
            one_file_system: self.settings.one_file_system,
        };
        self.roots[number].scan(&mut context)
    }

    /// A step of a sweep: looks at some files. The next step is so much later that sweeps take a small
    /// share of a processor, and changes of files are handled between two steps.
    fn sweep(&mut self) {
        let began = Instant::now();
        let cost = processor_time();
        let number = self.sweep.root;
        self.sweep.began.get_or_insert(began);
        if number < self.roots.len() && self.sweep.after.is_none() {
            self.scan(number);
        }
        let found = match self.roots.get(number) {
            Some(root) => targets_after(number, root, self.sweep.after.as_ref()),
            None => Vec::new(),
        };
        if self.examine(&found) {
            self.plan();
        }
        let count = found.len();
        self.sweep.after = found
            .last()
            .map(|last| (last.directory.clone(), last.name.clone()));
        for target in found {
            let Some(entry) = self.entry(&target) else {
                continue;
            };
            entry.tried = false;
            if entry.needs_work() {
                self.todo.push_back(target);
            }
        }
        self.by_sweep = true;
        let mut next = began;
        if count < STEP_FILES {
            self.sweep.root += 1;
            self.sweep.after = None;
            if self.sweep.root >= self.roots.len() {
                self.report_unwatched();
                self.report_unknown();
                self.plan();
                self.swept = self.sweep.began.unwrap_or(began);
                self.sweep = Sweep::default();
                next = self.swept + self.settings.interval;
            }
        }
        self.roots.iter_mut().for_each(Root::close);
        let cost = processor_time().saturating_sub(cost);
        self.next_sweep = next.max(Instant::now() + cost * IDLE_SHARE);
        self.changed_status();
    }

    /// Divides the limit among the files, in their order, and lets the rest go.
    fn plan(&mut self) {
        let began = Instant::now();
        let locked = self.entries_locked();
        let budget = self.budget.lasting(locked);
        self.limit = self.pressure.limit().unwrap_or(u64::MAX).min(budget);
        let mut left = self.limit;
        let mut fits = true;
        let mut seen = HashSet::new();
        let several = self.roots.len() > 1;
        let mut release: Vec<(FileRef, u64, (u64, u64))> = Vec::new();
        self.todo.clear();
        let mut locking = self.locking;
        for root in &mut self.roots {
            let mut smaller = Vec::new();
            for (directory, name, entry) in root.entries_mut() {
                let again = (several || entry.linked) && !seen.insert(entry.id);
                let wanted = if again { 0 } else { in_pages(entry.size) };
                let given = wanted.min(left);
                left -= given;
                fits &= given == wanted;
                let planned = given.min(entry.size);
                if planned < entry.planned.min(entry.size) && !again {
                    smaller.push((directory.clone(), name.clone(), planned, entry.id));
                }
                if planned > entry.planned {
                    entry.was_full = false;
                }
                entry.tried &= planned == entry.planned;
                entry.planned = planned;
            }
            let smaller = smaller
                .into_iter()
                .map(|(directory, name, planned, id)| (root.file(&directory, &name), planned, id));
            release.extend(smaller);
            let why = match self.settings.lock {
                true => plan_locks(root, &mut locking),
                false => None,
            };
            let said = why.unwrap_or_default();
            if said != root.said {
                if !said.is_empty() {
                    self.reports.say_of(&root.path, &said);
                }
                root.said = said;
            }
        }
        self.fits = (fits && !self.settings.lock).then_some(self.limit - left);
        for (file, planned, id) in release {
            evict_behind(&file, planned, id);
        }
        for number in 0..self.roots.len() {
            let found = self.roots[number]
                .entries()
                .filter(|(_, _, entry)| entry.needs_work());
            let found = found.map(|(directory, name, _)| Target {
                root: number,
                directory: directory.clone(),
                name: name.clone(),
                from: 0,
            });
            self.todo.extend(found);
        }
        self.plan_time = began.elapsed();
        self.changed_status();
    }

    fn report_unwatched(&self) {
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

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let all = self.roots.iter().flat_map(Root::entries);
        all.map(|(_, _, entry)| entry)
    }

    /// Says once for each path that its files are read in each sweep.
    fn report_unknown(&mut self) {
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

    /// The kernel reports memory pressure. Waiting for pages that were evicted counts as pressure, so
    /// reading causes some. If enough memory is available, the keeper first stops reading, and gives way
    /// if the pressure is reported again.
    fn handle_pressure(&mut self) {
        let now = Instant::now();
        let may_be_own = now < self.last_read + PRESSURE_WINDOW;
        if may_be_own && self.entries_locked() == 0 && is_memory_available() {
            self.paced = now + 2 * PRESSURE_WINDOW;
            return;
        }
        self.give_way();
    }

    /// Gives up the least important files.
    fn give_way(&mut self) {
        let kept = self
            .entries()
            .map(|entry| entry.resident.min(entry.planned))
            .sum();
        self.pressure.report(kept, Instant::now());
        self.plan();
    }

    /// Looks at the available memory: the budget may have to be smaller, or may be larger again.
    fn look_at_memory(&mut self, now: Instant) {
        self.next_memory = now + MEMORY_INTERVAL;
        let vmstat = proc::read("/proc/vmstat");
        let swapped = proc::number_of(&vmstat, "pswpout");
        let more = matches!((self.swapped, swapped), (Some(old), Some(new)) if new > old);
        self.swapped = swapped;
        if more {
            return self.give_way();
        }
        let locked = self.entries_locked();
        let budget = self.budget.lasting(locked);
        let eased = self.pressure.recover(budget, now);
        // Small changes of the available memory are no reason to plan again.
        let limit = self.pressure.limit().unwrap_or(u64::MAX).min(budget);
        let shrunk = limit < self.limit - self.limit / 32;
        let grown = limit > self.limit.saturating_add(self.limit / 8) && self.fits.is_none();
        if eased || (shrunk && self.fits.is_none_or(|used| used > limit)) || grown {
            self.plan();
            self.by_sweep = true;
        }
    }

    fn entries_locked(&self) -> u64 {
        match self.settings.lock {
            true => self.entries().map(Entry::locked).sum(),
            false => 0,
        }
    }

    /// Reads, looks at and locks some files.
    fn work(&mut self) {
        let is_urgent = !self.urgent.is_empty();
        let rate = match (self.settings.rate, is_urgent || !self.by_sweep) {
            (Some(rate), _) => Some(rate),
            (None, true) => None,
            (None, false) => Some(SWEEP_RATE),
        };
        let page = page_size();
        let most = rate.map_or(self.batch, |rate| self.batch.min(rate / 4 / page * page));
        let most = most.max(page);
        let targets = self.urgent.iter().chain(&self.todo).take(MAX_FILES);
        let numbers: HashSet<usize> = targets.map(|target| target.root).collect();
        numbers
            .into_iter()
            .for_each(|number| self.roots[number].reopen());
        let mut requests = Vec::new();
        let mut finished = Vec::new();
        let (mut bytes, mut unknown) = (0, false);
        let mut partly = None;
        while bytes < most && finished.len() < MAX_FILES {
            let queue = match is_urgent {
                true => &mut self.urgent,
                false => &mut self.todo,
            };
            let Some(mut target) = queue.pop_front() else {
                break;
            };
            let Some(entry) = self.entry(&target) else {
                continue;
            };
            if !entry.needs_work() {
                continue;
            }
            let (missing, planned, size) = (entry.missing(), entry.planned, entry.size);
            unknown |= entry.unknown.is_some();
            if missing == 0 {
                bytes += entry.lock_to;
                finished.push(target);
                continue;
            }
            let file = self.roots[target.root].file(&target.directory, &target.name);
            if planned >= size && size <= most {
                bytes += missing;
                requests.push(Request {
                    file,
                    selection: None,
                });
                finished.push(target);
                continue;
            }
            // A part of the file, in windows.
            let Ok((_, stat)) = file.open() else {
                finished.push(target);
                continue;
            };
            let stamp = Stamp::of(&stat);
            let end = match planned >= size {
                // The planned bytes are all of the file. Holes make it longer.
                true => stamp.size,
                false => planned.min(stamp.size),
            };
            let len = ((most - bytes) / page * page).max(page);
            let window = target.from..end.min(target.from.saturating_add(len));
            target.from = window.end;
            let is_last = window.end >= end;
            if !window.is_empty() {
                bytes += window.end - window.start;
                let ranges = vec![window];
                let selection = Some(Selection { ranges, stamp });
                requests.push(Request { file, selection });
            }
            if is_last {
                finished.push(target);
            } else {
                partly = Some(target);
                break;
            }
        }
        if requests.is_empty() && finished.is_empty() && partly.is_none() {
            self.roots.iter_mut().for_each(Root::close);
            return;
        }
        let began = Instant::now();
        let cost = processor_time();
        let (read, interrupted) = self.read(requests, bytes);
        let rest = match interrupted {
            true => {
                self.examine(&finished);
                finished.extend(partly);
                finished
            }
            false => {
                self.finish(finished);
                partly.iter().for_each(|target| self.count_part(target));
                Vec::from_iter(partly)
            }
        };
        let queue = match is_urgent {
            true => &mut self.urgent,
            false => &mut self.todo,
        };
        for mut target in rest.into_iter().rev() {
            if interrupted {
                target.from = 0;
            }
            queue.push_front(target);
        }
        let took = began.elapsed();
        if unknown {
            // The files are read again in each sweep.
            let cost = processor_time().saturating_sub(cost);
            self.next_sweep = self.next_sweep.max(Instant::now()) + cost * IDLE_SHARE;
        }
        if took > BATCH_TIME {
            self.batch = (self.batch / 2).max(MIN_BATCH);
        } else if took < BATCH_TIME / 4 && bytes >= self.batch {
            self.batch = (self.batch * 2).min(MAX_BATCH);
        }
        let pace = rate.map(|rate| Duration::from_secs_f64(read as f64 / rate as f64));
        self.paced = self.paced.max(began + pace.unwrap_or_default());
        self.changed_status();
    }

    /// Reads the missing bytes of files. Returns their number, and true if the work was interrupted.
    fn read(&mut self, requests: Vec<Request>, bytes: u64) -> (u64, bool) {
        if requests.is_empty() {
            return (0, false);
        }
        let limits = Limits {
            depth: DEPTH,
            // A file may have grown since it was planned.
            budget: Allowed::Bytes(bytes.saturating_add(MIN_BATCH)),
            ..Limits::default()
        };
        let engine = match engine(&limits) {
            Ok(engine) => engine,
            Err(e) => {
                self.reports.say(format_args!("cannot read now: {e}"));
                return (0, false);
            }
        };
        let stop = self.queue.new_work();
        let reporter = WhileReading(&self.reports);
        let mut progress = |_| {};
        let mut prefetcher = Prefetcher::new(engine, limits, None, &reporter, &mut progress, &stop);
        for request in requests {
            if prefetcher.add(request).is_err() {
                break;
            }
        }
        let read = prefetcher.finish().read_bytes;
        if read > 0 {
            self.last_read = Instant::now();
        }
        (read, stop.asked())
    }

    /// Looks at files that were read, counts what is new, and locks them.
    fn finish(&mut self, finished: Vec<Target>) {
        let before: Vec<(u64, bool)> = finished
            .iter()
            .map(|target| {
                let entry = self.entry(target);
                entry.map_or((0, false), |entry| (entry.resident, entry.was_full))
            })
            .collect();
        self.examine(&finished);
        for (target, (resident, was_full)) in finished.iter().zip(before) {
            let Some(root) = self.roots.get_mut(target.root) else {
                continue;
            };
            let file = root.file(&target.directory, &target.name);
            let Some(entry) = root.entry_mut(&target.directory, &target.name) else {
                continue;
            };
            entry.tried = true;
            lock_file(entry, &file);
            let now = match entry.unknown {
                Some(_) => entry.planned,
                None => entry.resident,
            };
            root.count(now.saturating_sub(resident), was_full);
        }
        self.roots.iter_mut().for_each(Root::close);
    }

    /// Counts the bytes of a large file that were read so far.
    fn count_part(&mut self, target: &Target) {
        let Some(root) = self.roots.get_mut(target.root) else {
            return;
        };
        let Some(entry) = root.entry_mut(&target.directory, &target.name) else {
            return;
        };
        let now = target.from.min(entry.planned);
        let (more, was_full) = (now.saturating_sub(entry.resident), entry.was_full);
        entry.resident += more;
        root.count(more, was_full);
    }

    fn changed_status(&mut self) {
        if self.status_due.is_none() {
            self.status_due = Some(self.status_written + STATUS_INTERVAL);
        }
    }

    /// Writes the status if it has changed and the last time is long enough ago.
    fn write_status(&mut self) {
        let now = Instant::now();
        if self.status_due.is_none_or(|due| now < due) {
            return;
        }
        self.status_due = None;
        let status = self.status();
        self.status_written = Instant::now();
        super::notify::status(&status);
        self.settings.write(&status, &self.reports);
    }

    fn status(&mut self) -> Status {
        let locked = self.entries_locked();
        let budget = self.budget.lasting(locked);
        let paths = self.roots.iter().map(PathStatus::of).collect();
        let mut status = Status::new(self.settings.lock, self.settings.budget.to_string(), paths)
            .times(self.started, self.swept, self.next_sweep)
            .limits(budget, self.limit, &self.pressure, self.pressure_watched);
        status.unwatched_directories = self.roots.iter().map(Root::unwatched).sum();
        status
    }
}

/// The next files of a path in a sweep, at most [`STEP_FILES`].
fn targets_after(number: usize, root: &Root, after: Option<&(Arc<Path>, OsString)>) -> Vec<Target> {
    let found = root.entries_after(after).take(STEP_FILES);
    let targets = found.map(|(directory, name)| Target {
        root: number,
        directory: directory.clone(),
        name: name.clone(),
        from: 0,
    });
    targets.collect()
}

/// All files of a directory and below it.
fn targets(number: usize, root: &Root, path: &Path) -> Vec<Target> {
    let files = root.below(path).flat_map(|(directory, known)| {
        known.files.keys().map(|name| Target {
            root: number,
            directory: directory.clone(),
            name: name.clone(),
            from: 0,
        })
    });
    files.collect()
}

/// Looks at files, on several threads if they are many. The results are in the order of the files.
fn looks(files: impl Iterator<Item = FileRef>, reports: &Reports) -> Vec<Result<Look, OpenError>> {
    let mut looks = Vec::new();
    let mut files = files;
    let done: Result<(), std::convert::Infallible> = examine(
        |each| files.try_for_each(each),
        |file, stat| Look::at(&file, &stat, u64::MAX),
        |found, look| {
            if let Err(why) = &look {
                found.failed(reports, *why);
            }
            looks.push(look);
            Ok(())
        },
    );
    let Ok(()) = done;
    looks
}

/// Chooses the files of a path that are locked: all, or the largest ones if there are too many.
/// Returns a message if some are not locked.
fn plan_locks(root: &mut Root, left: &mut lock::Limits) -> Option<String> {
    let mut sizes: Vec<u64> = root
        .entries()
        .filter(|(_, _, entry)| entry.planned > 0)
        .map(|(_, _, entry)| entry.planned)
        .collect();
    let mut least = 0;
    if sizes.len() > left.mappings {
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        least = sizes.get(left.mappings).map_or(0, |size| size + 1);
        if left.mappings == 0 {
            least = u64::MAX;
        }
    }
    let (mut files, mut bytes, mut small) = (0u64, 0u64, false);
    for (_, _, entry) in root.entries_mut() {
        let wanted = in_pages(entry.planned);
        let is_small = entry.planned < least;
        let given = match entry.planned > 0 && !is_small && left.mappings > 0 {
            true => wanted.min(left.bytes),
            false => 0,
        };
        if given > 0 {
            left.bytes -= given;
            left.mappings -= 1;
        }
        if given < wanted {
            files += 1;
            bytes += wanted - given;
            small |= is_small;
        }
        let lock_to = given.min(entry.planned);
        entry.tried &= lock_to == entry.lock_to;
        entry.lock_to = lock_to;
        if entry.locked() > entry.lock_to {
            entry.lock = None;
        }
    }
    if files == 0 {
        return None;
    }
    let why = match small {
        true => "vm.max_map_count",
        false => "RLIMIT_MEMLOCK",
    };
    let files = plural(files, "file");
    Some(format!(
        "{} of {files} are touched, not locked: {why}",
        Size(bytes)
    ))
}

/// Locks the planned part of a file, or locks it again.
fn lock_file(entry: &mut Entry, file: &FileRef) {
    if entry.lock_to == 0 {
        entry.lock = None;
        return;
    }
    if entry.locked() == entry.lock_to
        && let Some(lock) = &entry.lock
    {
        // Pages may have been dropped since.
        let _ = lock.again();
        return;
    }
    entry.lock = None;
    let opened = file
        .open()
        .ok()
        .filter(|(_, stat)| (stat.st_dev, stat.st_ino) == entry.id);
    let Some((file, _)) = opened else { return };
    entry.lock = Lock::new(&file, entry.lock_to).ok().map(Box::new);
}

/// Drops the pages of a file from the page cache, from this byte on.
fn evict_behind(file: &FileRef, from: u64, id: (u64, u64)) {
    if let Ok((file, stat)) = file.open()
        && (stat.st_dev, stat.st_ino) == id
    {
        let _ = rustix::fs::fadvise(&file, from, None, Advice::DontNeed);
    }
}

/// Returns true if at least an eighth of the memory is available.
fn is_memory_available() -> bool {
    let all = proc::number_of(&proc::read("/proc/meminfo"), "MemTotal:");
    let available = proc::available_memory();
    matches!((available, all), (Some(available), Some(kib)) if available >> 10 >= kib / 8)
}

/// The processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
