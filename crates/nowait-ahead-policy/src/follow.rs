//! Follows a program by the events of libnowait_ahead.so, and decides which directories are read
//! ahead.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nowait_ahead_channel::{Channel, Counts, Event, Kind, Listening, Reader, SEEK, SLOW};
use rustix::fs::FileType;

use crate::cached::is_cached;
use crate::comparison::Comparison;
use crate::directories::{Depth, DirectoryState};
use crate::directory::{Id, OpenDirectory, is_on_disk, reopen};
use crate::disk::Disks;
use crate::files::Files;
use crate::mounts;
use crate::process::Process;
use crate::threads::Threads;
use crate::trees::{POLL_INTERVAL, Trees, UNUSED_AFTER};

/// Follows a program.
pub struct Follower {
    channel: Arc<Channel>,
    trees: Trees,
    files: Option<Files>,
    /// The number of files that the program has opened in directories that it has listed.
    opened: u64,
    /// The inode numbers of the directories that the program has listed. Their devices are not
    /// known if the program has closed them before their events were handled.
    listed: HashSet<u64>,
    /// The directories that a thread has listed, by their descriptors at that time.
    descriptors: HashMap<(u32, i32), Id>,
    /// The directories of opened files, by their absolute paths. A path may name another one
    /// meanwhile: nothing is opened by it.
    paths: HashMap<Vec<u8>, Id>,
    comparison: Comparison,
    /// The time since which the walks pause to check the comparison.
    paused: Option<Instant>,
    slow: SlowCalls,
    /// The directory that the program has entered last, and its state at that time.
    here: Option<(Id, DirectoryState)>,
    threads: Threads,
    disks: Disks,
    /// The device of the directory that was opened last. 0 at first.
    device: u64,
    /// The program's calls of stat(2) when it opened the last large directory whose inodes were
    /// read before a call was slow.
    stats_at_large: Option<u64>,
}

/// A thread that follows a program.
pub struct Following {
    stop: Arc<AtomicBool>,
    /// The result of the thread: the number of lost events, and the comparison.
    end: Receiver<(u64, Comparison)>,
    channel: Arc<Channel>,
}

/// The sums over the program's events.
#[derive(Debug, Default)]
pub struct Activity {
    /// The calls of stat(2).
    pub counts: Counts,
    /// The number of events that were overwritten before they were read.
    pub lost: u64,
    /// The program's speed with readahead and without.
    pub comparison: Comparison,
}

/// The calls of stat(2) and open(2) that waited for the disk, until directories are read ahead.
#[derive(Debug, Default)]
struct SlowCalls {
    calls: u32,
    /// By directory.
    directories: HashMap<Id, u32>,
    /// The number of directories with such calls, by the directory above.
    children: HashMap<Id, u32>,
    /// The calls in directories that had been read ahead.
    useless_calls: u32,
}

/// The number of slow calls before a directory is read ahead.
const MIN_SLOW: u32 = 4;
/// The number of slow calls in one directory before it is read ahead. Also the number of
/// directories with slow calls before the directory above them is read ahead.
const MIN_REPEATED: u32 = 2;
/// The number of slow calls in directories that had been read, after which readahead is given up if
/// they are a quarter of all calls.
const MAX_USELESS_CALLS: u32 = 64;
/// The maximum number of directories whose slow calls are counted.
const MAX_DIRECTORIES: usize = 100_000;
/// The number of calls of stat(2) since the last large directory. A program with fewer lists names
/// only.
const MIN_STATS: u64 = 64;
/// The time that the thread has to stop. It takes longer if it waits for a directory.
const STOP_TIMEOUT: Duration = Duration::from_millis(50);
/// The time that the walks and the reads have to end before the program unmounts a filesystem.
const LET_GO_TIMEOUT: Duration = Duration::from_millis(1800);
/// If the filesystem is still in use after this time, all walks end.
const LET_GO_ALL_AFTER: Duration = Duration::from_millis(200);
/// The time between two looks for the walks whose files the program does not open.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time of a pause of the walks.
const MAX_PAUSE: Duration = Duration::from_secs(1);

impl Follower {
    /// Follows the programs that have this channel.
    pub fn new(channel: Arc<Channel>, trees: Trees, files: Option<Files>) -> Follower {
        Follower {
            channel,
            trees,
            files,
            opened: 0,
            listed: HashSet::new(),
            descriptors: HashMap::new(),
            paths: HashMap::new(),
            comparison: Comparison::default(),
            paused: None,
            slow: SlowCalls::default(),
            here: None,
            threads: Threads::default(),
            disks: Disks::default(),
            device: 0,
            stats_at_large: None,
        }
    }

    /// Begins to follow. If the thread cannot be started, nothing is read ahead.
    pub fn start(self) -> Following {
        let stop = Arc::new(AtomicBool::new(false));
        let (channel, stopped) = (self.channel.clone(), stop.clone());
        let (to, end) = mpsc::channel();
        let thread = std::thread::Builder::new().name("follow".to_owned());
        let _ = thread.spawn(move || drop(to.send(self.follow(&stopped))));
        Following { stop, end, channel }
    }

    fn follow(mut self, stopped: &AtomicBool) -> (u64, Comparison) {
        let channel = self.channel.clone();
        let mut reader = Reader::new(&channel);
        let mut looked = Instant::now();
        while !stopped.load(Ordering::Relaxed) {
            let event = reader.next_until(Instant::now() + POLL_INTERVAL);
            let stats = channel.counts().stats;
            // A program that opens files need not ask for their metadata.
            self.trees.set_stats(stats.max(self.opened));
            if self.trees.found_cached() {
                self.slow = SlowCalls::default();
            }
            if let Some(event) = event {
                self.handle(&event);
            }
            self.check();
            if let Some(files) = &self.files
                && looked.elapsed() >= LOOK_INTERVAL
            {
                looked = Instant::now();
                let since = looked.checked_sub(UNUSED_AFTER);
                since.into_iter().for_each(|it| files.let_go_unused(it));
            }
            let gave_up = self.comparison.gives_no_gain() || self.slow.gives_no_gain(stats);
            let files_give_no_gain = self.files.as_ref().is_some_and(Files::gives_no_gain);
            if gave_up && channel.is_listening(Listening::Directories) {
                self.trees.cancel();
                self.files.iter().for_each(|files| files.let_go(|_| true));
                channel.listen(Listening::Off);
            } else if files_give_no_gain && channel.is_listening(Listening::Files) {
                channel.listen(Listening::Directories);
            }
        }
        (reader.lost(), self.comparison)
    }

    /// Begins and ends pauses. If the comparison is in doubt, the walks pause, and the program's
    /// speed during the pause decides.
    fn check(&mut self) {
        let Some(since) = self.paused else {
            if self.comparison.is_doubtful() {
                self.trees.pause(true);
                self.comparison.pause();
                self.paused = Some(Instant::now());
            }
            return;
        };
        if self.comparison.can_decide() || since.elapsed() >= MAX_PAUSE {
            self.trees.pause(false);
            self.comparison.resume();
            self.paused = None;
        }
    }

    /// Handles an event.
    fn handle(&mut self, event: &Event) {
        match event.kind {
            Kind::Opened => self.opened(event),
            Kind::Large => {
                if let Some(directory) = self.open(event).filter(|it| it.is_large)
                    && self.trees.state_of(directory.id) == DirectoryState::Unknown
                {
                    self.opened_large(event, directory);
                }
            }
            Kind::Listing => {
                if let Some(directory) = self.open(event) {
                    self.listed(directory.id.1);
                    if directory.is_large
                        && self.may_read_ahead(&directory)
                        && !is_cached(&directory.fd)
                    {
                        self.trees.list_names(directory.fd);
                    }
                }
            }
            Kind::Walking => {
                if let Some(directory) = self.open(event) {
                    self.trees.entered(directory.id, event.tid);
                    if self.may_read_ahead(&directory) {
                        self.trees.begin(directory.fd, directory.id, Depth::All);
                    }
                }
            }
            Kind::Entered => self.entered(event, event.id),
            Kind::Slow | Kind::VerySlow => {
                if self.threads.has_slept(event.tid)
                    && let Some(directory) = self.open(event)
                {
                    let is_long = event.kind == Kind::VerySlow;
                    self.disks.add_wait(directory.id.0, is_long);
                    self.waited(directory, event.tid, true);
                }
            }
            Kind::File => self.opened_file(event),
            Kind::Unmounting => self.let_go(Path::new(OsStr::from_bytes(&event.path))),
            // The events of other channels.
            _ => {}
        }
    }

    /// Closes the directories and files of a mount, so that the program can unmount it. Does not wait long for a disk or a server
    /// that does not answer.
    ///
    /// A walk from another mount may have come to this one, and the mount may be that of proc(5).
    fn let_go(&mut self, point: &Path) {
        let mounts = mounts::at(point);
        let (trees, files, threads) = (&self.trees, self.files.as_ref(), &mut self.threads);
        trees.let_go(&mounts);
        let mut ends_all = false;
        mounts::wait_until_unused(&mounts, LET_GO_TIMEOUT, |passed| {
            if passed >= LET_GO_ALL_AFTER && !ends_all {
                ends_all = true;
                trees.let_go_all();
                *threads = Threads::default();
            }
            let is_there =
                |root: &OwnedFd| ends_all || mounts::of(root).is_none_or(|it| mounts.contains(&it));
            // A walk may add files until it ends.
            files.iter().for_each(|files| files.let_go(is_there));
        });
    }

    /// Records that the program has opened a file. Only those count in directories that the program
    /// has listed: it may go on to the next file there. A program that finds files by their names
    /// opens few of a directory, such as a compiler or an interpreter.
    fn opened_file(&mut self, event: &Event) {
        let Some(files) = self.files.clone().filter(|it| !it.gives_no_gain()) else {
            return;
        };
        if let Some((directory, name)) = self.listed_here(event) {
            self.opened += 1;
            let is_known = files.opened_name(directory, name);
            return self.waited_for_file(event, directory, is_known);
        }
        let directory = directory_of(event);
        if let Some(id) = self.paths.get(&directory.path)
            && !self.listed.contains(&id.1)
        {
            return;
        }
        let Some(file) = regular_file(event) else {
            return;
        };
        let known = files.directory_of(file);
        let Some(id) = known.or_else(|| self.id_of(&directory)) else {
            return;
        };
        if !self.listed.contains(&id.1) {
            return;
        }
        self.device = id.0;
        self.opened += 1;
        files.opened(file);
        self.waited_for_file(event, id, known.is_some());
    }

    /// The directory that the thread has listed with the descriptor of an event, and the name of the file there. The program
    /// may have closed the descriptor meanwhile, and opened another directory with the same number.
    fn listed_here<'a>(&self, event: &'a Event) -> Option<(Id, &'a Path)> {
        let name = Path::new(OsStr::from_bytes(&event.path));
        let is_name = !event.path.is_empty() && !event.path.contains(&b'/');
        let id = self
            .descriptors
            .get(&(event.tid, event.fd))
            .filter(|_| is_name)?;
        Some((*id, name))
    }

    /// Records the time that the program has waited for a file of this directory.
    fn waited_for_file(&mut self, event: &Event, id: Id, is_known: bool) {
        let took = Duration::from_nanos(event.time);
        let is_slow = took >= SLOW && self.threads.has_slept(event.tid);
        if is_slow {
            self.disks.add_wait(id.0, took >= SEEK);
        }
        if (is_slow || !is_known && self.threads.has_read(event.tid))
            && let Some(directory) = self.open(&directory_of(event)).filter(|it| it.id == id)
        {
            self.waited(directory, event.tid, is_slow);
        }
    }

    /// The program has listed a directory.
    fn listed(&mut self, inode: u64) {
        if self.listed.len() < MAX_DIRECTORIES {
            self.listed.insert(inode);
        }
    }

    /// The identity of the directory of an event. The program need not list it, and it may be on
    /// another device than those that it lists.
    fn id_of(&mut self, event: &Event) -> Option<Id> {
        let id = open(event)?.id;
        if event.path.starts_with(b"/") && self.paths.len() < MAX_DIRECTORIES {
            self.paths.insert(event.path.clone(), id);
        }
        Some(id)
    }

    /// Records that the program lists a directory. The event has its inode number without the
    /// device. If the directory need not be opened, it is taken to be on the device of the last one
    /// that was opened.
    fn opened(&mut self, event: &Event) {
        let has_waited = self.threads.has_read(event.tid);
        let id = (self.device, event.id.1);
        self.listed(id.1);
        let is_known = id.0 != 0 && id.1 != 0;
        let state = self.trees.state_of(id);
        if is_known && (state != DirectoryState::Unknown || !has_waited) {
            self.remember(event, id);
            self.entered(event, id);
            if state == DirectoryState::Waiting
                && let Some(directory) = self.open(event)
            {
                self.read_now(directory);
            }
        } else if let Some(directory) = self.open(event) {
            self.listed(directory.id.1);
            self.remember(event, directory.id);
            self.entered(event, directory.id);
            if has_waited {
                self.waited(directory, event.tid, false);
            }
        } else {
            self.descriptors.remove(&(event.tid, event.fd));
        }
    }

    /// A thread has listed a directory with the descriptor of an event.
    fn remember(&mut self, event: &Event, directory: Id) {
        let key = (event.tid, event.fd);
        if self.descriptors.len() < MAX_DIRECTORIES || self.descriptors.contains_key(&key) {
            self.descriptors.insert(key, directory);
        }
    }

    /// The program has entered a directory.
    fn entered(&mut self, event: &Event, id: Id) {
        let state = self.trees.entered(id, event.tid);
        self.here = Some((id, state));
        if event.time > 0 {
            self.comparison.entered(event, state.treatment());
        }
    }

    /// Opens the directory of an event. `None` if the program has left it, or if its files are not
    /// on a disk.
    fn open(&mut self, event: &Event) -> Option<OpenDirectory> {
        let directory = open(event)?;
        self.device = directory.id.0;
        is_on_disk(&directory.fd).then_some(directory)
    }

    /// Handles a large directory that the program has opened and no walk has found. Unless it is
    /// cached or the disk may seek, its names are listed at the same time, and its inodes are read.
    /// The first time, it is not known if the program needs the inodes, and a bounded number is
    /// read. Afterwards the program's calls of stat(2) since the last time decide.
    fn opened_large(&mut self, event: &Event, directory: OpenDirectory) {
        if !self.may_read_ahead(&directory) || is_cached(&directory.fd) {
            return;
        }
        let Some(names) = reopen(&directory.fd) else {
            return;
        };
        match self.stats_at_large {
            None => self.trees.begin(directory.fd, directory.id, Depth::One),
            Some(before) if event.stats >= before.saturating_add(MIN_STATS) => {
                self.read_ahead(directory)
            }
            Some(_) => return self.trees.list_names(names),
        }
        self.stats_at_large = Some(event.stats);
        self.trees.list_names(names);
    }

    /// Records that the program waits for the disk in a directory. The directory is read if that
    /// happens again.
    fn waited(&mut self, directory: OpenDirectory, thread: u32, is_slow: bool) {
        self.trees.waits(directory.id, thread);
        if self.disks.is_known_to_seek(directory.id.0) {
            return;
        }
        match self.trees.state_of(directory.id) {
            DirectoryState::Queued | DirectoryState::Waiting => self.read_now(directory),
            // It was complete before the program came.
            DirectoryState::Complete
                if is_slow && self.here == Some((directory.id, DirectoryState::Complete)) =>
            {
                self.slow.useless_calls += 1
            }
            DirectoryState::Unknown => {
                let parent = directory.parent().map(|parent| parent.id);
                if self.slow.add(directory.id, parent) {
                    self.read_ahead(directory);
                }
            }
            _ => {}
        }
    }

    /// Reads a directory that a walk would read later. On a disk that seeks, only walks by `--walk`
    /// read, and in their own order.
    fn read_now(&self, directory: OpenDirectory) {
        if !self.disks.is_known_to_seek(directory.id.0) {
            self.trees.begin(directory.fd, directory.id, Depth::One);
        }
    }

    /// Returns true if it is decided that the disk of a directory does not seek. On one that seeks,
    /// readahead may make the program slower.
    fn may_read_ahead(&mut self, directory: &OpenDirectory) -> bool {
        self.disks.seeks(&directory.fd, directory.id.0) == Some(false)
    }

    /// Reads the directory that the program is in. If the program has opened the directory above,
    /// or waits in several directories there, it goes through a tree, and the tree is read.
    fn read_ahead(&mut self, directory: OpenDirectory) {
        if !self.may_read_ahead(&directory) {
            return;
        }
        let mut top = (directory, Depth::One);
        while let Some(parent) = top.0.parent()
            && (self.trees.has_entered(parent.id) || self.slow.has_several(parent.id))
        {
            match self.trees.state_of(parent.id) {
                DirectoryState::Control => break,
                DirectoryState::Unknown | DirectoryState::Complete => top = (parent, Depth::All),
                // The walk will come to the directory.
                DirectoryState::Queued
                | DirectoryState::Starting
                | DirectoryState::Waiting
                | DirectoryState::Read => {
                    return;
                }
            }
        }
        self.trees.begin(top.0.fd, top.0.id, top.1);
    }
}

impl SlowCalls {
    /// Adds a slow call. Returns true if the directory is to be read ahead.
    fn add(&mut self, directory: Id, parent: Option<Id>) -> bool {
        if self.directories.len() >= MAX_DIRECTORIES {
            *self = SlowCalls::default();
        }
        self.calls += 1;
        let here = self.directories.entry(directory).or_default();
        *here += 1;
        let is_first = *here == 1;
        let again = *here >= MIN_REPEATED;
        if let Some(parent) = parent.filter(|_| is_first) {
            *self.children.entry(parent).or_default() += 1;
        }
        let several = parent.is_some_and(|parent| self.has_several(parent));
        self.calls >= MIN_SLOW && (again || several)
    }

    /// Returns true if calls were slow in several directories of this one.
    fn has_several(&self, parent: Id) -> bool {
        self.children
            .get(&parent)
            .is_some_and(|&n| n >= MIN_REPEATED)
    }

    /// Returns true if calls are slow in directories that were read completely: the filesystem does
    /// not cache inodes, or has no memory for them. `stats` is the number of all calls.
    fn gives_no_gain(&self, stats: u64) -> bool {
        self.useless_calls >= MAX_USELESS_CALLS && u64::from(self.useless_calls) * 4 > stats
    }
}

impl Following {
    /// Stops the thread, and returns the sums. They are incomplete if the thread waits for a
    /// directory.
    pub fn stop(self) -> Activity {
        self.stop.store(true, Ordering::Relaxed);
        self.channel.wake();
        let (lost, comparison) = self.end.recv_timeout(STOP_TIMEOUT).unwrap_or_default();
        Activity {
            lost,
            comparison,
            ..Activity::of(&self.channel)
        }
    }
}

impl Activity {
    /// The counts of a program that was not followed.
    pub fn of(channel: &Channel) -> Activity {
        Activity {
            counts: channel.counts(),
            ..Activity::default()
        }
    }
}

/// Opens the directory of an event. `None` if the program has left it or must not be followed
/// there.
fn open(event: &Event) -> Option<OpenDirectory> {
    let process = Process::of(event.tid)?;
    let directory = OpenDirectory::new(process.open(event.fd, &event.path)?)?;
    let (device, inode) = event.id;
    let is_it =
        (device == 0 || device == directory.id.0) && (inode == 0 || inode == directory.id.1);
    is_it.then_some(directory)
}

/// The event with the directory of its file.
fn directory_of(event: &Event) -> Event {
    let mut event = event.clone();
    let slash = event.path.iter().rposition(|&byte| byte == b'/');
    event.path.truncate(slash.map_or(0, |slash| slash.max(1)));
    event
}

/// The file of an event, if it is a regular one and not empty.
fn regular_file(event: &Event) -> Option<Id> {
    let stat = Process::of(event.tid)?.stat(event.fd, &event.path)?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    (is_regular && stat.st_size > 0).then_some((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};
    use std::os::fd::AsRawFd;

    use test_support::limit::wait_until;

    use crate::mounts::tests::Mounted;

    /// The events are handled when the program has closed the directory, and opened another one with the same descriptor.
    #[test]
    fn a_file_is_one_of_the_directory_that_was_listed_with_the_descriptor() {
        let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let id = |path: &str| {
            let stat = rustix::fs::stat(root.path().join(path)).unwrap();
            (stat.st_dev, stat.st_ino)
        };
        for path in ["left", "next"] {
            std::fs::create_dir(root.path().join(path)).unwrap();
            std::fs::write(root.path().join(path).join("name"), "bytes").unwrap();
        }
        let channel = Arc::new(Channel::create(7).unwrap().0);
        let files = Files::new(|| 1 << 30);
        let trees = Trees::new(Some(files.clone()), || 1 << 30);
        let tree = std::fs::File::open(root.path()).unwrap();
        trees.begin(tree.into(), id(""), Depth::All);
        let end = Instant::now() + Duration::from_secs(300);
        while files.directory_of(id("left/name")).is_none()
            || files.directory_of(id("next/name")).is_none()
        {
            assert!(Instant::now() < end, "the walk finds no files");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut follower = Follower::new(channel, trees, Some(files.clone()));
        follower.device = id("").0;
        let reused = std::fs::File::open(root.path().join("next")).unwrap();
        let event = |kind, inode, path: &[u8]| Event {
            kind,
            tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            fd: reused.as_raw_fd(),
            id: (0, inode),
            time: 0,
            stats: 0,
            pages: 0,
            path: path.to_vec(),
        };
        follower.handle(&event(Kind::Opened, id("left").1, b""));
        follower.handle(&event(Kind::File, 0, b"name"));
        assert_eq!(files.directory_of(id("left/name")), None);
        assert_eq!(files.directory_of(id("next/name")), Some(id("next")));
    }

    /// The device of a directory is the same when it is mounted elsewhere.
    #[test]
    fn a_walk_that_has_entered_another_mount_ends_when_that_is_to_be_unmounted() {
        let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = root.path().canonicalize().unwrap();
        let [from, tree, point] = ["d", "t", "t/m"].map(|name| root.join(name));
        for n in 0..200 {
            std::fs::create_dir_all(from.join(format!("{n}/e"))).unwrap();
        }
        std::fs::create_dir_all(&point).unwrap();
        let Some(_mounted) = Mounted::new(&["--bind", from.to_str().unwrap()], &point) else {
            return;
        };
        let stat = rustix::fs::stat(&tree).unwrap();
        let (channel, trees) = (
            Arc::new(Channel::create(7).unwrap().0),
            Trees::new(Some(Files::new(|| 1 << 30)), || 1 << 30),
        );
        let mut follower = Follower::new(channel, trees.clone(), None);
        let calls = std::sync::atomic::AtomicU64::new(0);
        let end = Instant::now() + Duration::from_secs(300);
        std::thread::scope(|scope| {
            // The program calls stat(2) in the tree, so the walk waits for it.
            trees.entered((stat.st_dev, stat.st_ino), 0);
            let directory = std::fs::File::open(&tree).unwrap().into();
            trees.begin(directory, (stat.st_dev, stat.st_ino), Depth::All);
            let calling = scope.spawn(|| {
                while trees.is_walking() {
                    assert!(Instant::now() < end, "the walk goes on");
                    trees.set_stats(calls.fetch_add(1, Ordering::Relaxed));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            wait_until("the walk is there", || trees.summary().directories >= 10);
            follower.let_go(&point);
            calling.join().unwrap();
        });
    }

    #[test]
    fn any_events_can_be_taken() {
        const NUMBERS: [u64; 6] = [0, 1, 7, 1 << 33, u64::MAX - 1, u64::MAX];
        let channel = Arc::new(Channel::create(7).unwrap().0);
        let trees = Trees::new(None, || 1 << 30);
        let mut follower = Follower::new(channel, trees.clone(), Some(Files::new(|| 1 << 30)));
        let random = RandomState::new();
        for n in 0..50_000_u64 {
            let any = |which: u8| random.hash_one((n, which));
            let number = |which| match any(which) % 9 {
                at @ 0..6 => NUMBERS[at as usize],
                6 => any(which),
                _ => any(which) % 5,
            };
            let event = Event {
                // The last one waits until this process has no file open.
                kind: Kind::ALL[any(0) as usize % (Kind::ALL.len() - 1)],
                tid: 0,
                fd: any(1) as i32,
                id: (number(2), number(3)),
                time: number(4),
                stats: number(5),
                pages: number(6),
                path: Vec::new(),
            };
            trees.set_stats(number(6));
            follower.handle(&event);
            follower.check();
            follower.slow.gives_no_gain(number(7));
        }
        let (read_ahead, control) = follower.comparison.sums();
        let _ = (read_ahead.per_stat(), control.per_stat(), trees.summary());
    }
}
