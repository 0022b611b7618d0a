//! Follows a program by the events of libnowait_ahead.so, and decides which directories are read ahead.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nowait_ahead_channel::{Channel, Counts, Event, Kind, LARGE, Listening, Reader};
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, openat};

use crate::cached::is_cached;
use crate::comparison::Comparison;
use crate::directories::{Depth, Standing};
use crate::disk::Disks;
use crate::files::Files;
use crate::id::Id;
use crate::process::Process;
use crate::trees::{PAUSE, Trees};
use crate::waits::Waits;

/// Follows a program.
pub struct Follower {
    channel: Arc<Channel>,
    trees: Trees,
    files: Option<Files>,
    /// The number of files that the program has opened.
    opened: u64,
    comparison: Comparison,
    /// The time since which the walks pause to check the comparison.
    paused: Option<Instant>,
    slow: Slow,
    waits: Waits,
    disks: Disks,
    /// The device of the directory that was looked at last. 0 at first.
    device: u64,
    /// The program's calls of stat(2) when the last large directory was read early.
    early: Option<u64>,
}

/// A program that is followed.
pub struct Following {
    stop: Arc<AtomicBool>,
    /// The events that were lost, and the comparison, when the thread has ended.
    end: Receiver<(u64, Comparison)>,
    channel: Arc<Channel>,
}

/// The sums of the program's events.
#[derive(Debug, Default)]
pub struct Activity {
    /// The calls of stat(2).
    pub counts: Counts,
    /// The events that were not read in time.
    pub lost: u64,
    /// The program's speed with readahead and without.
    pub comparison: Comparison,
}

/// The calls that waited for the disk.
#[derive(Debug, Default)]
struct Slow {
    calls: u32,
    /// By directory.
    directories: HashMap<Id, u32>,
    /// The number of directories with such calls, by the directory above.
    children: HashMap<Id, u32>,
    /// The calls in directories that had been read ahead.
    in_vain: u32,
}

/// The number of slow calls after which directories are read ahead.
const SLOW: u32 = 4;
/// The number of slow calls in one directory, or of directories with such calls in one above.
const AGAIN: u32 = 2;
/// The number of slow calls in directories that had been read, after which readahead is given up if they are a quarter of
/// all calls.
const IN_VAIN: u32 = 64;
/// The number of directories whose slow calls are remembered.
const REMEMBERED: usize = 100_000;
/// The number of calls of stat(2) since a large directory was opened, after which the program is taken to ask for its inodes.
const USED: u64 = 64;
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// The interval at which the program's counts are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// The time within which a thread stops that does not wait for a directory.
const STOPPED: Duration = Duration::from_millis(50);

impl Follower {
    /// Follows the programs that have this channel.
    pub fn new(channel: Arc<Channel>, trees: Trees, files: Option<Files>) -> Follower {
        Follower {
            channel,
            trees,
            files,
            opened: 0,
            comparison: Comparison::default(),
            paused: None,
            slow: Slow::default(),
            waits: Waits::default(),
            disks: Disks::default(),
            device: 0,
            early: None,
        }
    }

    /// Begins to follow. The program runs as it would without readahead if there is no thread for that.
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
        while !stopped.load(Ordering::Relaxed) {
            let event = reader.next_until(Instant::now() + LOOK);
            let stats = channel.counts().stats;
            // A program that opens files need not ask for their metadata.
            self.trees.set_stats(stats.max(self.opened));
            if self.trees.found_cached() {
                self.slow = Slow::default();
            }
            if let Some(event) = event {
                self.take(&event);
            }
            self.check();
            let gave_up = self.comparison.is_useless()
                || self.slow.is_useless(stats)
                || self.trees.were_slower();
            let files_useless = self.files.as_ref().is_some_and(Files::is_useless);
            if gave_up && channel.is_listening(Listening::Directories) {
                self.trees.cancel();
                channel.listen(Listening::Off);
            } else if files_useless && channel.is_listening(Listening::Files) {
                channel.listen(Listening::Directories);
            }
        }
        (reader.lost(), self.comparison)
    }

    /// Checks the comparison if it is in doubt: the walks pause, and the program's speed meanwhile decides.
    fn check(&mut self) {
        let Some(since) = self.paused else {
            if self.comparison.is_doubtful() && self.trees.pause() {
                self.comparison.pause();
                self.paused = Some(Instant::now());
            }
            return;
        };
        if self.comparison.has_passed_enough() || since.elapsed() >= PAUSE {
            self.trees.resume();
            self.comparison.resume();
            self.paused = None;
        }
    }

    /// Decides what an event means for the walks.
    fn take(&mut self, event: &Event) {
        match event.kind {
            Kind::Opened => self.opened(event),
            Kind::Large => {
                if let Some(directory) = self.find(event).filter(|it| it.is_large)
                    && self.trees.standing(directory.id) == Standing::Unknown
                {
                    self.opened_large(event, directory);
                }
            }
            Kind::Listing => {
                if let Some(directory) = self.find(event).filter(|it| it.is_large)
                    && self.can_gain(&directory)
                {
                    self.trees.list(directory.fd);
                }
            }
            Kind::Walking => {
                if let Some(directory) = self.find(event) {
                    self.trees.entered(directory.id, false);
                    if self.can_gain(&directory) {
                        self.trees.begin(directory.fd, directory.id, Depth::All);
                    }
                }
            }
            Kind::Entered => self.entered(event, event.id, false),
            Kind::Slow | Kind::VerySlow => {
                if self.waits.has_slept(event.tid)
                    && let Some(directory) = self.find(event)
                {
                    let is_long = event.kind == Kind::VerySlow;
                    self.disks.waited(directory.id.0, is_long);
                    self.waited(directory, true);
                }
            }
            Kind::File => {
                if let Some(files) = self.files.as_ref().filter(|files| !files.is_useless())
                    && let Some(file) = regular_file(event)
                {
                    self.opened += 1;
                    if !files.opened(file)
                        && !self.disks.is_known_to_seek(file.0)
                        && let Some(directory) = self.find(&directory_of(event))
                    {
                        self.waited(directory, false);
                    }
                }
            }
        }
    }

    /// The program lists a directory, of which its library knows the inode alone. The device is that of the last one that was looked
    /// at, unless more than that is to be known.
    fn opened(&mut self, event: &Event) {
        let has_waited = self.waits.has_read(event.tid);
        let id = (self.device, event.id.1);
        let is_known = id.0 != 0 && id.1 != 0;
        let standing = self.trees.standing(id);
        if is_known && (standing != Standing::Unknown || !has_waited) {
            self.entered(event, id, has_waited);
            if standing == Standing::Waiting
                && let Some(directory) = self.find(event)
            {
                self.read_now(directory);
            }
        } else if let Some(directory) = self.find(event) {
            self.entered(event, directory.id, has_waited);
            if has_waited {
                self.waited(directory, false);
            }
        }
    }

    /// The program has entered a directory.
    fn entered(&mut self, event: &Event, id: Id, has_waited: bool) {
        let standing = self.trees.entered(id, has_waited);
        if event.time > 0 {
            self.comparison.entered(event, standing.treatment());
        }
    }

    /// Opens the directory of an event. `None` if the program has left it, or its files are not on a disk.
    fn find(&mut self, event: &Event) -> Option<Directory> {
        let directory = Directory::of(event)?;
        self.device = directory.id.0;
        is_on_disk(&directory.fd).then_some(directory)
    }

    /// A large directory was opened that no walk has found. The program will list it for some time: its names are listed with
    /// it, and its inodes are read meanwhile, unless they are cached or the disk may seek. The first time this is a guess, for a
    /// bounded number of inodes. Afterwards it depends on the program's calls of stat(2).
    fn opened_large(&mut self, event: &Event, directory: Directory) {
        if !self.can_gain(&directory) || is_cached(&directory.fd) {
            return;
        }
        let Some(names) = directory.again() else {
            return;
        };
        match self.early {
            None => self.trees.begin(directory.fd, directory.id, Depth::One),
            Some(before) if event.stats >= before.saturating_add(USED) => {
                self.read_ahead(directory)
            }
            Some(_) => return self.trees.list(names),
        }
        self.early = Some(event.stats);
        self.trees.list(names);
    }

    /// The program waits for the disk in a directory. The second time, the directory is read.
    fn waited(&mut self, directory: Directory, is_slow: bool) {
        if self.disks.is_known_to_seek(directory.id.0) {
            return;
        }
        match self.trees.standing(directory.id) {
            Standing::Coming | Standing::Waiting => self.read_now(directory),
            Standing::Complete if is_slow => self.slow.in_vain += 1,
            Standing::Unknown => {
                let parent = directory.parent().map(|parent| parent.id);
                if self.slow.note(directory.id, parent) {
                    self.read_ahead(directory);
                }
            }
            _ => {}
        }
    }

    /// Reads a directory that a walk would read later. A walk by `--walk` is not overtaken on a disk that seeks.
    fn read_now(&self, directory: Directory) {
        if !self.disks.is_known_to_seek(directory.id.0) {
            self.trees.begin(directory.fd, directory.id, Depth::One);
        }
    }

    /// Returns true if it is decided that a directory's disk does not seek. On one that does, readahead may make the program slower.
    fn can_gain(&mut self, directory: &Directory) -> bool {
        self.disks.seeks(&directory.fd, directory.id.0) == Some(false)
    }

    /// Reads a directory that the program is in, if that can gain. If the program came there from another one, or goes
    /// through several, it goes through a tree: then the tree is read.
    fn read_ahead(&mut self, directory: Directory) {
        if !self.can_gain(&directory) {
            return;
        }
        let mut top = (directory, Depth::One);
        while let Some(parent) = top.0.parent()
            && (self.trees.has_entered(parent.id) || self.slow.has_several(parent.id))
        {
            match self.trees.standing(parent.id) {
                Standing::Control => break,
                Standing::Unknown | Standing::Complete => top = (parent, Depth::All),
                // The walk will come to the directory.
                Standing::Coming | Standing::Beginning | Standing::Waiting | Standing::Read => {
                    return;
                }
            }
        }
        self.trees.begin(top.0.fd, top.0.id, top.1);
    }
}

impl Slow {
    /// Counts a slow call. Returns true if the directory is to be read.
    fn note(&mut self, directory: Id, parent: Option<Id>) -> bool {
        if self.directories.len() >= REMEMBERED {
            *self = Slow::default();
        }
        self.calls += 1;
        let here = self.directories.entry(directory).or_default();
        *here += 1;
        let is_first = *here == 1;
        let again = *here >= AGAIN;
        if let Some(parent) = parent.filter(|_| is_first) {
            *self.children.entry(parent).or_default() += 1;
        }
        let several = parent.is_some_and(|parent| self.has_several(parent));
        self.calls >= SLOW && (again || several)
    }

    /// Returns true if calls were slow in several directories in this one.
    fn has_several(&self, parent: Id) -> bool {
        self.children.get(&parent).is_some_and(|&n| n >= AGAIN)
    }

    /// Returns true if calls are slow in directories that were read completely: the filesystem does not cache inodes, or has
    /// no memory for them. `stats` is the number of all calls.
    fn is_useless(&self, stats: u64) -> bool {
        self.in_vain >= IN_VAIN && u64::from(self.in_vain) * 4 > stats
    }
}

impl Following {
    /// Ends it, and returns the sums. They are incomplete if the thread waits for a directory.
    pub fn stop(self) -> Activity {
        self.stop.store(true, Ordering::Relaxed);
        self.channel.wake();
        let (lost, comparison) = self.end.recv_timeout(STOPPED).unwrap_or_default();
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

/// A directory of the program, opened again.
struct Directory {
    fd: OwnedFd,
    id: Id,
    /// Its listing takes many requests of the disk.
    is_large: bool,
}

impl Directory {
    /// `None` if the program has left it or cannot be followed there.
    fn of(event: &Event) -> Option<Directory> {
        let process = Process::of(event.tid)?;
        let directory = Directory::opened(process.open(event.fd, &event.path)?)?;
        let (device, inode) = event.id;
        let is_it =
            (device == 0 || device == directory.id.0) && (inode == 0 || inode == directory.id.1);
        is_it.then_some(directory)
    }

    fn opened(fd: OwnedFd) -> Option<Directory> {
        let stat = fstat(&fd).ok()?;
        Some(Directory {
            fd,
            id: (stat.st_dev, stat.st_ino),
            is_large: stat.st_size >= LARGE,
        })
    }

    /// The same directory with a position of its own, so that it can be listed beside this one.
    fn again(&self) -> Option<OwnedFd> {
        openat(&self.fd, ".", FLAGS, Mode::empty()).ok()
    }

    /// The directory above, if there is one on the same filesystem.
    fn parent(&self) -> Option<Directory> {
        let parent = Directory::opened(openat(&self.fd, "..", FLAGS, Mode::empty()).ok()?)?;
        (parent.id.0 == self.id.0 && parent.id != self.id).then_some(parent)
    }
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

/// False for filesystems whose files are made when they are looked at; see statfs(2).
fn is_on_disk(fd: &OwnedFd) -> bool {
    const PSEUDO: [u32; 12] = [
        0x0000_9fa0, // proc
        0x6265_6572, // sysfs
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x0000_1cd1, // devpts
        0x0000_0187, // autofs
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x7363_6673, // securityfs
        0xcafe_4a11, // bpf
    ];
    fstatfs(fd).is_ok_and(|stat| !PSEUDO.contains(&(stat.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    use rustix::fs::{CWD, Dir};

    /// A duplicate of the descriptor would share the position: each would get a part of the names.
    #[test]
    fn a_directory_is_listed_twice_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..100 {
            std::fs::write(dir.path().join(name.to_string()), "").unwrap();
        }
        let fd = openat(CWD, dir.path(), FLAGS, Mode::empty()).unwrap();
        let directory = Directory::opened(fd).unwrap();
        let names = directory.again().unwrap();
        for fd in [directory.fd, names] {
            assert_eq!(Dir::new(fd).unwrap().count(), 102);
        }
    }

    #[test]
    fn any_events_can_be_taken() {
        const NUMBERS: [u64; 6] = [0, 1, 7, 1 << 33, u64::MAX - 1, u64::MAX];
        let channel = Arc::new(Channel::create(7).unwrap().0);
        let trees = Trees::new(None, || 1 << 30);
        let mut follower = Follower::new(channel, trees.clone(), Some(Files::new(1 << 30)));
        let random = RandomState::new();
        for n in 0..50_000_u64 {
            let any = |which: u8| random.hash_one((n, which));
            let number = |which| match any(which) % 9 {
                at @ 0..6 => NUMBERS[at as usize],
                6 => any(which),
                _ => any(which) % 5,
            };
            let event = Event {
                kind: Kind::ALL[any(0) as usize % Kind::ALL.len()],
                tid: 0,
                fd: any(1) as i32,
                id: (number(2), number(3)),
                time: number(4),
                stats: number(5),
                path: Vec::new(),
            };
            trees.set_stats(number(6));
            follower.take(&event);
            follower.check();
            follower.slow.is_useless(number(7));
        }
        let (read_ahead, control) = follower.comparison.sums();
        let _ = (read_ahead.per_stat(), control.per_stat(), trees.summary());
    }
}
