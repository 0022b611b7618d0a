//! Evicts the pages that a program has added to the page cache, where no memory control group can.
//!
//! ```text
//!  open(2) ─► libnowait_ahead.so surveys the file ─► Surveyed, Missing … ─► SurveyedFile
//!  read(2) ─► it surveys a window of a large file ─► Missing …
//!  close(2) ─► it evicts a small file itself, and withdraws the event, unless data is read ahead
//!  every 20 ms: is it in use (uses)? ─► yes, and large: evict the windows behind its position
//!                                   └► no: evict what was missing, look again, and forget the file,
//!                                          unless it was read ahead and the program is expected to open it
//!  the program has ended ─► evict the rest, wait until it is written
//! ```
//! A file is known until it was evicted. A part of a file that was not surveyed is not evicted.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nowait_ahead_channel::{Channel, Event, Kind, Reader, key};
use nowait_residency::leases::Leases;
use nowait_residency::sys::clock::thread_time;

use crate::directory::Id;
use crate::evictions::{Evictions, Sums, add_sums, by_name};
use crate::mounts;
use crate::path_starts::{LONGEST as LONGEST_PATH, PathStarts};
use crate::process::{OtherRights, Process};
use crate::readahead::Readahead;
use crate::renamed::Renamed;
use crate::surveyed::{Surveyed, share};
use crate::surveyed_file::{ReadAheadFiles, SurveyedFile, look, may_be_same, open_path};
use crate::uses::{Processes, has_channel};

/// A thread that keeps the page cache.
pub struct Evictor {
    channel: Arc<Channel>,
    stop: Arc<AtomicBool>,
    end: Receiver<Evictions>,
}

struct State {
    channel: Arc<Channel>,
    /// Files that are about to be read ahead.
    read_ahead: ReadAheadFiles,
    processes: Processes,
    /// Processes that were looked at since the last check.
    found: HashMap<u32, Option<Result<Process, OtherRights>>>,
    starts: PathStarts,
    /// The paths of directories, by their [`key`].
    directories: HashMap<u64, PathBuf>,
    files: HashMap<Id, SurveyedFile>,
    /// Files that were opened after it was found which files are in use.
    just_opened: HashSet<Id>,
    /// Files that were not found: their paths, by inode number.
    renamed: Renamed,
    /// The library has reported something.
    has_reports: bool,
    /// A process of the program has other rights than this one.
    has_others: bool,
    /// A process of the program has a filter of system calls.
    is_filtered: bool,
    sums: HashMap<u64, Sums>,
}

/// The time between two looks at the files that are in use.
const INTERVAL: Duration = Duration::from_millis(20);
/// Programs withdraw the events of most small files within this time.
const DELAY: Duration = Duration::from_millis(4);
/// A look takes at most this part of a processor.
const SHARE: u32 = 10;
/// The maximum number of processes that are looked at once for several events.
const MAX_FOUND: usize = 4;
/// The maximum number of files. So many are in use, or changed and not yet written.
const MAX_FILES: usize = 1_000_000;
/// The maximum number of directories whose paths are known.
const MAX_DIRECTORIES: usize = 100_000;
/// The longest time that pages are waited for which are not yet written.
const LONGEST: Duration = Duration::from_secs(10);

impl Evictor {
    /// Tells the libraries how far the kernel reads ahead. This is to be done before the program starts: its first reads depend
    /// on it.
    pub fn prepare(channel: &Channel) {
        channel.set_readahead(kernel_readahead());
    }

    /// Starts the thread. If that fails, nothing is evicted. The files that `readahead` reads from now on are evicted when the program
    /// has opened and closed them, or has ended. `program` is its process, and `group` the directory of its control group, if it has one
    /// of its own: the evictor keeps the files that its processes use. `is_unseen` returns true if the library does not see the
    /// calls of a program. If it is `None`, such programs are not looked for.
    pub fn start(
        channel: Arc<Channel>,
        program: u32,
        group: Option<PathBuf>,
        readahead: &Readahead,
        is_unseen: Option<fn(&Path) -> bool>,
    ) -> Evictor {
        let read_ahead = ReadAheadFiles::default();
        let surveyed = read_ahead.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (to, end) = mpsc::channel();
        let (stopped, mut state) = (
            stop.clone(),
            State::new(channel.clone(), program, read_ahead),
        );
        (state.processes.group, state.processes.is_unseen) = (group, is_unseen);
        let thread = std::thread::Builder::new().name("keep".to_owned());
        if thread
            .spawn(move || drop(to.send(state.run(&stopped))))
            .is_ok()
        {
            readahead.survey_before_reading(surveyed);
        }
        Evictor { channel, stop, end }
    }

    /// Evicts the rest after the end of the program. Waits until it is written, at most 20 seconds. `None` if that time is over, or
    /// if the thread could not be started.
    pub fn stop(self) -> Option<Evictions> {
        self.stop.store(true, Ordering::Relaxed);
        self.channel.wake();
        self.end.recv_timeout(2 * LONGEST).ok()
    }
}

impl State {
    fn new(channel: Arc<Channel>, program: u32, read_ahead: ReadAheadFiles) -> State {
        State {
            channel,
            read_ahead,
            processes: Processes::of(Some(program)),
            found: HashMap::new(),
            starts: PathStarts::default(),
            directories: HashMap::new(),
            files: HashMap::new(),
            just_opened: HashSet::new(),
            renamed: Renamed::default(),
            has_reports: false,
            has_others: false,
            is_filtered: false,
            sums: HashMap::new(),
        }
    }

    fn run(&mut self, stopped: &AtomicBool) -> Evictions {
        let channel = self.channel.clone();
        let mut reader = Reader::new(&channel);
        let mut interval = INTERVAL;
        while !stopped.load(Ordering::Relaxed) {
            let deadline = Instant::now() + interval;
            while !stopped.load(Ordering::Relaxed)
                && let left = deadline.saturating_duration_since(Instant::now())
                && !left.is_zero()
            {
                reader.read_after(DELAY.min(left), deadline, |event| self.handle(event));
            }
            interval = INTERVAL.max(self.check(&mut reader) * SHARE);
        }
        let deadline = Instant::now() + LONGEST;
        reader.drain(deadline, |event| self.handle(event));
        self.take_read_ahead();
        self.find_renamed();
        self.finish(deadline);
        self.report(reader.lost())
    }

    fn handle(&mut self, event: &Event) {
        self.take_read_ahead();
        self.has_reports = true;
        let max_ranges = share(self.files.len());
        match event.kind {
            Kind::Missing => {
                if let Some(file) = self.files.get_mut(&event.id) {
                    file.add(event.missing(), max_ranges);
                } else {
                    self.renamed.survey(event.id, event.missing());
                }
            }
            Kind::Path => self.starts.add(event),
            Kind::Surveyed => {
                self.processes.add(event.tid);
                let path = self.starts.complete(event);
                self.forget_if_removed(event.id, event.birth());
                match self.files.get_mut(&event.id) {
                    None => self.opened(event, &path),
                    Some(file) => {
                        file.opened_again(event, max_ranges);
                        self.just_opened.insert(event.id);
                    }
                }
            }
            Kind::Started => self.processes.add(event.tid),
            Kind::Filtered => self.is_filtered = true,
            Kind::Named => self.named(event),
            Kind::Directory => {
                if self.directories.len() >= MAX_DIRECTORIES {
                    self.directories.clear();
                }
                let path = OsString::from_vec(self.starts.complete(event));
                self.directories.insert(key(event.id), path.into());
            }
            _ => {}
        }
    }

    /// A file has got another name. One that was closed before is found by it.
    fn named(&mut self, event: &Event) {
        let name = self.starts.complete(event);
        let path = self.absolute(event, &name);
        if !path.is_absolute() {
            return;
        }
        let channel = self.channel.clone();
        let _opens = channel.begin_opens();
        let Some(((id, _), is_directory)) = look(&path) else {
            // Perhaps a directory, and one above it was renamed meanwhile.
            return self.renamed.directory_is_named(path, false);
        };
        if is_directory {
            self.directory_is_named(id, path);
        } else if let Some(file) = self.files.get_mut(&id) {
            file.is_named(&path);
        } else {
            self.renamed.is_named(id, path);
        }
    }

    /// A directory has got another path, and so have those below it. If another directory has its path now, they were perhaps exchanged
    /// (RENAME_EXCHANGE of renameat2(2)).
    fn directory_is_named(&mut self, id: Id, path: PathBuf) {
        if let Some(before) = self.directories.get(&key(id)).cloned() {
            let is_exchanged = look(&before).is_some_and(|(_, is_directory)| is_directory);
            self.directories.retain(|_, directory| {
                if let Ok(below) = directory.strip_prefix(&before) {
                    *directory = path.join(below);
                } else if is_exchanged && let Ok(below) = directory.strip_prefix(&path) {
                    *directory = before.join(below);
                }
                directory.as_os_str().len() < LONGEST_PATH
            });
        }
        self.renamed.directory_is_named(path, true);
    }

    /// Forgets a file if another one with the same number has been opened, which has this birth.
    fn forget_if_removed(&mut self, id: Id, birth: u32) {
        let is_other = |file: &SurveyedFile| !may_be_same(file.birth, birth);
        if self.files.get(&id).is_some_and(is_other) {
            self.files.remove(&id);
        }
    }

    /// The path of an event. It is relative if its directory is not known.
    fn absolute(&self, event: &Event, name: &[u8]) -> PathBuf {
        let directory = self.directories.get(&event.stats);
        directory
            .map_or(Path::new(""), PathBuf::as_path)
            .join(OsStr::from_bytes(name))
    }

    /// Takes the surveys of files that are read ahead.
    fn take_read_ahead(&mut self) {
        let surveyed = self.read_ahead.lock().take(self.files.len());
        self.add_read_ahead(surveyed);
    }

    /// From now on, files that were read ahead and then opened by the program are evicted as others are. Those that are in use now are
    /// still to be found.
    fn take_opened(&mut self) {
        let opened = self.read_ahead.take_opened();
        self.take_read_ahead();
        for id in opened {
            if let Some(file) = self.files.get_mut(&id) {
                file.is_expected = false;
            }
        }
    }

    /// Adds files that are read ahead. Their surveys may come before or after those of the program.
    fn add_read_ahead(&mut self, surveyed: impl IntoIterator<Item = SurveyedFile>) {
        for file in surveyed {
            self.add(file);
        }
    }

    /// Adds the file of an event. It is not added if its process has other rights than this one. A
    /// process that has ended is taken to have had the same rights, unless another process has not.
    fn opened(&mut self, event: &Event, named: &[u8]) {
        let path = self.absolute(event, named);
        // The search for a process takes longer than the rest of this function. Each process that is found has a descriptor.
        if self.found.len() >= MAX_FOUND {
            self.found.clear();
        }
        let processes = &mut self.found;
        let found = processes
            .entry(event.tid)
            .or_insert_with(|| Process::find(event.tid));
        let process = match found {
            // A thread of another PID namespace has another number here.
            Some(Err(OtherRights)) if has_channel(event.tid) != Some(false) => {
                self.has_others = true;
                return;
            }
            Some(Ok(process)) => Some(process),
            _ if self.has_others => return,
            _ => None,
        };
        let channel = self.channel.clone();
        let _opens = channel.begin_opens();
        let surveyed = Surveyed::opened(event);
        let identity = (event.id, event.birth());
        let new = |file: OwnedFd| SurveyedFile::new(&file, identity, surveyed.clone());
        let by_path = || path.is_absolute().then(|| open_path(&path))?;
        let by_number = || process.as_ref()?.hold(event.descriptor(), b"");
        let as_process = || process.as_ref()?.hold(event.fd, named);
        let file = by_path().and_then(new);
        let file = file.or_else(|| by_number().and_then(new));
        match file.or_else(|| as_process().and_then(new)) {
            Some(file) => self.insert_opened(file),
            None if path.is_absolute() => self.renamed.add(identity, path, surveyed),
            None => {}
        }
    }

    /// Looks for files that were renamed before their events were handled, or before they were evicted.
    fn find_renamed(&mut self) {
        let (found, lost) = {
            let _opens = self.channel.begin_opens();
            self.renamed.find()
        };
        for file in found {
            self.insert_opened(file);
        }
        lost.into_iter().for_each(|id| self.channel.free(id));
    }

    fn insert_opened(&mut self, file: SurveyedFile) {
        let id = file.id;
        if self.add(file) {
            self.just_opened.insert(id);
        }
    }

    /// Adds a file, which may be known already. Returns false if there are too many: its pages stay.
    fn add(&mut self, file: SurveyedFile) -> bool {
        self.forget_if_removed(file.id, file.birth);
        let max_ranges = share(self.files.len());
        if let Some(known) = self.files.get_mut(&file.id) {
            known.unite(file, max_ranges);
            return true;
        }
        let has_room = self.files.len() < MAX_FILES;
        if has_room {
            self.files.insert(file.id, file);
        } else {
            self.sums.entry(file.mount).or_default().unknown += 1;
        }
        has_room
    }

    /// Evicts files that the program does not use any more, and the windows behind its position in
    /// large ones. Returns how long it took to find the files and those that are in use.
    fn check(&mut self, reader: &mut Reader<'_>) -> Duration {
        let (now, began) = (Instant::now(), thread_time());
        self.found.clear();
        self.take_opened();
        self.find_renamed();
        if self.files.is_empty() && self.processes.is_unseen.is_none() {
            return thread_time().saturating_sub(began);
        }
        let files = &self.files;
        let is_large = |id| files.get(&id).is_some_and(SurveyedFile::is_large);
        let uses = self.processes.uses(is_large);
        let took = thread_time().saturating_sub(began);
        // The library sends the survey of a part before the program reads it. After this call, the surveys of all
        // files that are not in use have arrived.
        self.just_opened.clear();
        reader.read_after(Duration::ZERO, now + LONGEST, |event| self.handle(event));
        let mut leases = Leases::now();
        let read_ahead = self.read_ahead.clone();
        let mut surveyed = read_ahead.lock();
        self.add_read_ahead(surveyed.take(self.files.len()));
        let channel = self.channel.clone();
        let _opens = channel.begin_opens();
        let (now, sums) = (Instant::now(), &mut self.sums);
        let renamed = &mut self.renamed;
        self.files.retain(|id, file| {
            if leases.has(*id) || self.just_opened.contains(id) {
                return true;
            }
            if let Some(position) = uses.position(*id) {
                file.evict_behind(position, uses.path(*id));
                return true;
            }
            let is_over = file.may_be_evicted() && file.evict(now);
            if is_over && let Some((path, surveyed)) = file.path_if_renamed() {
                renamed.add((*id, file.birth), path.to_owned(), surveyed.clone());
            } else if is_over {
                add_sums(sums, file, file.is_clean().then_some(0));
                channel.free(*id);
            }
            !is_over
        });
        took
    }

    /// Evicts the rest. Clean pages are tried eight times: those that stay are in use by another process. The files that
    /// were read ahead are tried for two seconds, because the disk may still be reading them. A file that a thread still reads ahead is
    /// tried until it does not. After `deadline` no file is tried any more.
    fn finish(&mut self, deadline: Instant) {
        const ROUNDS: u32 = 7;
        const READS: Duration = Duration::from_secs(2);
        let end_of_reads = Instant::now() + READS;
        let mut pause = Duration::from_millis(1);
        for round in 0.. {
            let (sums, renamed) = (&mut self.sums, &mut self.renamed);
            let opens = self.channel.begin_opens();
            let mut leases = Leases::now();
            self.files.retain(|id, file| {
                if leases.has(*id) {
                    sums.entry(file.mount).or_default().unknown += 1;
                    return false;
                }
                if Instant::now() >= deadline {
                    add_sums(sums, file, Some(file.left()));
                    return false;
                }
                let is_being_read = file.is_being_read();
                let left = file.evict_all(true);
                if left.is_none()
                    && !is_being_read
                    && let Some((path, surveyed)) = file.path_if_renamed()
                {
                    renamed.add((*id, file.birth), path.to_owned(), surveyed.clone());
                    return false;
                }
                let found = left.unwrap_or_default();
                let is_read = file.is_read_ahead && Instant::now() < end_of_reads;
                let is_used = found.unwritten == 0 && round >= ROUNDS && !is_read;
                let is_over = (found.left == 0 || is_used) && !is_being_read;
                if is_over {
                    add_sums(sums, file, left.map(|it| it.left));
                }
                !is_over
            });
            drop(opens);
            self.find_renamed();
            if self.files.is_empty() {
                break;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(64));
        }
    }

    fn report(&self, lost: u64) -> Evictions {
        let mounts = mounts::points();
        let mut sums = self.sums.clone();
        for evicted in self.channel.evicted() {
            sums.entry(evicted.mount).or_default().add(Sums {
                files: evicted.files,
                before: evicted.before,
                after: evicted.after,
                ..Sums::default()
            });
        }
        Evictions {
            mounts: by_name(&sums, &mounts),
            unseen: self.processes.unseen(),
            lost,
            has_reports: self.has_reports,
            has_other_rights: self.has_others,
            is_filtered: self.is_filtered,
        }
    }
}

/// The greatest number of bytes that the kernel reads ahead on a device or a filesystem of this machine. 0 if that is
/// not known.
fn kernel_readahead() -> u64 {
    let devices = fs::read_dir("/sys/class/bdi")
        .into_iter()
        .flatten()
        .flatten();
    let kilobytes = devices.filter_map(|device| {
        let text = fs::read_to_string(device.path().join("read_ahead_kb")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    kilobytes.max().unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surveyed_file::Reading;
    use nowait_residency::ranges::Ranges;

    fn state() -> State {
        let (channel, _memory) = Channel::create(1).unwrap();
        State::new(
            Arc::new(channel),
            std::process::id(),
            ReadAheadFiles::default(),
        )
    }

    fn event(kind: Kind, path: &Path) -> Event {
        Event {
            kind,
            tid: std::process::id(),
            fd: -1,
            id: (0, 0),
            time: 0,
            stats: 0,
            pages: 0,
            path: path.as_os_str().as_bytes().to_vec(),
        }
    }

    /// A program may write anything into the channel.
    #[test]
    fn paths_do_not_become_longer_and_longer() {
        let mut state = state();
        let directory = tempfile::tempdir().unwrap();
        let ((id, _), _) = look(directory.path()).unwrap();
        for _ in 0..1000 {
            let mut root = event(Kind::Directory, Path::new("/"));
            root.id = id;
            state.handle(&root);
            let mut other = event(Kind::Directory, Path::new("/other"));
            other.id = (1, 2);
            if !state.directories.contains_key(&key(other.id)) {
                state.handle(&other);
            }
            // All directories are below this one now.
            state.handle(&event(Kind::Named, directory.path()));
            let longest = state.directories.values().map(|it| it.as_os_str().len());
            assert!(longest.max() < Some(LONGEST_PATH));
        }
    }

    #[test]
    fn directories_below_exchanged_ones_have_their_new_paths() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let exchange = || {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::EXCHANGE).unwrap();
        };
        // The events of the exchange are handled if one of the two directories is known, or both are.
        for known in [&["a"][..], &["b"], &["a", "b"]] {
            let mut state = state();
            let mut ids = HashMap::new();
            for name in ["a", "b", "a/in_a", "b/in_b"] {
                fs::create_dir_all(at(name)).unwrap();
                let ((id, _), _) = look(&at(name)).unwrap();
                ids.insert(name, key(id));
                if known.contains(&name) || name.contains('/') {
                    let mut directory = event(Kind::Directory, &at(name));
                    directory.id = id;
                    state.handle(&directory);
                }
            }
            exchange();
            for name in ["a", "b"] {
                state.handle(&event(Kind::Named, &at(name)));
            }
            for (before, now) in [
                ("a", "b"),
                ("b", "a"),
                ("a/in_a", "b/in_a"),
                ("b/in_b", "a/in_b"),
            ] {
                if known.contains(&before) || before.contains('/') {
                    assert_eq!(state.directories[&ids[before]], at(now), "{known:?}");
                }
            }
            exchange();
        }
    }

    /// A file was removed before its event is handled. Another process has made one that has its number, and its path.
    #[test]
    fn a_later_file_with_the_number_of_a_removed_one_is_not_evicted() {
        let program = std::env::current_exe().unwrap();
        let file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
        std::fs::write(&file, [7; 5000]).unwrap();
        let ((id, birth), _) = look(file.path()).unwrap();
        let surveyed = |birth: u32| Event {
            id,
            time: u64::from(birth) << 32,
            pages: u64::MAX,
            ..event(Kind::Surveyed, file.path())
        };
        let mut state = state();
        let is_known = |state: &mut State, birth| {
            state.handle(&surveyed(birth));
            state.find_renamed();
            state.files.contains_key(&id)
        };
        assert!(!is_known(&mut state, birth ^ 1));
        assert!(is_known(&mut state, birth));
        // The program has opened a file, which was removed meanwhile, after the one that is there.
        assert!(!is_known(&mut state, birth ^ 1));
        // A file that is read ahead may be another one than that of an event.
        let opened = open_path(file.path()).unwrap();
        let read_ahead = || SurveyedFile::new(&opened, (id, birth), Surveyed::default());
        let mut removed = read_ahead().unwrap();
        removed.birth ^= 1;
        state.add(removed);
        state.add_read_ahead(read_ahead());
        assert_eq!(state.files[&id].birth, birth);
    }

    /// A file with some cached pages that was surveyed to be read ahead.
    fn read_ahead(state: &State) -> (tempfile::NamedTempFile, Id, Reading) {
        let program = std::env::current_exe().unwrap();
        let file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
        std::fs::write(&file, [7; 5000]).unwrap();
        file.as_file().sync_all().unwrap();
        let reading = begin_to_read(&file, state);
        std::fs::read(&file).unwrap();
        let ((id, _), _) = look(file.path()).unwrap();
        (file, id, reading)
    }

    /// Evicts a file, and surveys it to be read ahead.
    fn begin_to_read(file: &tempfile::NamedTempFile, state: &State) -> Reading {
        let opened = std::fs::File::open(file).unwrap();
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        SurveyedFile::before_readahead(&opened.into(), &state.read_ahead).unwrap()
    }

    fn cached(file: &tempfile::NamedTempFile) -> u64 {
        let opened = std::fs::File::open(file).unwrap();
        let known = nowait_residency::residency(&opened, 0..u64::MAX).unwrap();
        known.known().unwrap().cached
    }

    #[test]
    fn a_file_that_was_read_ahead_is_forgotten_when_the_program_has_used_it() {
        // The program is another process: this one has the file open.
        let channel = Arc::new(Channel::create(1).unwrap().0);
        let mut state = State::new(channel.clone(), u32::MAX, ReadAheadFiles::default());
        let mut reader = Reader::new(&channel);
        let (_file, id, reading) = read_ahead(&state);
        let mut stays = |state: &mut State| {
            for _ in 0..20 {
                state.check(&mut reader);
                assert!(state.files.contains_key(&id));
                // An eviction would be tried again after this time.
                std::thread::sleep(INTERVAL);
            }
        };
        stays(&mut state);
        state.read_ahead.add_opened(id);
        // The thread that reads it ahead may still add pages.
        stays(&mut state);
        drop(reading);
        test_support::limit::wait_until("it is evicted", || {
            state.check(&mut reader);
            state.files.is_empty()
        });
    }

    #[test]
    fn a_file_is_not_forgotten_at_the_end_while_a_thread_reads_it_ahead() {
        let mut state = state();
        let (file, _, reading) = read_ahead(&state);
        state.take_read_ahead();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The first rounds have found no page.
                std::thread::sleep(Duration::from_millis(300));
                std::fs::read(&file).unwrap();
                drop(reading);
            });
            state.finish(Instant::now() + LONGEST);
        });
        assert_eq!(cached(&file), 0);
    }

    /// Two names of a file are found by two walks.
    #[test]
    fn a_file_that_two_threads_read_ahead_is_kept_until_both_have() {
        for first in [0, 1] {
            let mut state = state();
            let (file, id, one) = read_ahead(&state);
            let mut readings = vec![one, begin_to_read(&file, &state)];
            state.take_read_ahead();
            state.files.get_mut(&id).unwrap().is_expected = false;
            for may_be_evicted in [false, true] {
                drop(readings.remove(first.min(readings.len() - 1)));
                assert_eq!(state.files[&id].may_be_evicted(), may_be_evicted);
            }
        }
    }

    /// The program has opened it, and it was not found by that name. Meanwhile it was read ahead by another name.
    #[test]
    fn a_renamed_file_is_united_with_the_same_one_that_is_read_ahead() {
        let mut state = state();
        let (file, id, reading) = read_ahead(&state);
        let (identity, _) = look(file.path()).unwrap();
        let first = Event {
            id,
            pages: 1,
            ..event(Kind::Surveyed, file.path())
        };
        let path = file.path().to_owned();
        state.renamed.add(identity, path, Surveyed::opened(&first));
        state.take_read_ahead();
        state.find_renamed();
        let known = &state.files[&id];
        assert!(state.just_opened.contains(&id));
        assert!(known.is_expected && known.is_read_ahead && known.is_being_read());
        assert_eq!(known.surveyed, Surveyed::whole(Ranges::all()));
        drop(reading);
        assert!(!state.files[&id].is_being_read());
    }

    #[test]
    fn no_file_is_evicted_after_the_deadline() {
        let mut state = state();
        let (_file, id, _) = read_ahead(&state);
        state.take_read_ahead();
        let mount = state.files[&id].mount;
        state.finish(Instant::now());
        assert!(state.files.is_empty());
        let sums = Sums {
            unknown: 1,
            ..Sums::default()
        };
        assert_eq!(state.sums[&mount], sums);
    }
}
