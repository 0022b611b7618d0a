//! Follows a program by the events of libnowait_ahead.so, and decides which directories are read ahead.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nowait_ahead_channel::{Channel, Counts, Event, Kind, Reader, VARIABLE};
use rustix::fs::{Mode, OFlags, fstat, fstatfs, open, openat};

use super::id::Id;
use super::trees::{Depth, Trees};
use crate::problem::Problem;

/// The channel to a program that is about to start.
pub struct Follower {
    channel: Arc<Channel>,
    /// The descriptor that the program opens the channel by.
    _memory: OwnedFd,
    trees: Trees,
}

/// A program that is followed.
pub struct Following {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
    channel: Arc<Channel>,
}

/// The sums of the program's events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    /// The calls of stat(2).
    pub counts: Counts,
    /// The events that were not read in time.
    pub lost: u64,
}

/// The number of slow calls of stat(2) after which the program's directories are read ahead.
const SLOW: u32 = 4;
/// The number of opened directories that are remembered until then.
const RECENT: usize = 8;
/// The bytes of a directory (`st_size`) that is listed as soon as it is opened. The names of some thousand files take as much.
const LARGE: i64 = 128 << 10;
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// The interval at which the program's counts are looked at.
const LOOK: Duration = Duration::from_millis(10);

impl Follower {
    /// Creates the channel and tells the command of it.
    pub fn new(command: &mut Command, trees: Trees) -> Result<Follower, Problem> {
        let key = RandomState::new().build_hasher().finish();
        let (channel, memory) =
            Channel::create(key).map_err(|e| Problem::of("cannot make shared memory", e))?;
        let (pid, fd) = (std::process::id(), memory.as_raw_fd());
        command.env(VARIABLE, format!("/proc/{pid}/fd/{fd}:{key:x}"));
        Ok(Follower {
            channel: Arc::new(channel),
            _memory: memory,
            trees,
        })
    }

    /// Begins to follow.
    pub fn start(self) -> Following {
        let stop = Arc::new(AtomicBool::new(false));
        let (channel, stopped) = (self.channel.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("follow".to_owned());
        Following {
            stop,
            channel,
            thread: thread.spawn(move || self.follow(&stopped)).ok(),
        }
    }

    fn follow(self, stopped: &AtomicBool) -> u64 {
        let mut reader = Reader::new(&self.channel);
        let mut slow = 0;
        let mut recent = VecDeque::new();
        while !stopped.load(Ordering::Relaxed) {
            let event = reader.next_until(Instant::now() + LOOK);
            self.trees.set_stats(self.channel.counts().stats);
            if self.trees.found_cached() {
                slow = 0;
            }
            let Some(event) = event else { continue };
            match event.kind {
                Kind::Slow => slow += 1,
                // Most directories of a tree are known: nothing more is asked about them.
                Kind::Opened if self.trees.opened(event.id) => {}
                Kind::Opened | Kind::Listing => {
                    if let Some(directory) = Directory::of(&event)
                        && (event.kind == Kind::Opened || !self.trees.opened(directory.id))
                    {
                        if directory.is_large
                            && let Some(again) = directory.again()
                        {
                            self.trees.list(again);
                        }
                        recent.truncate(RECENT - 1);
                        recent.push_front(directory);
                    }
                }
                Kind::Walking => {
                    if let Some(directory) = Directory::of(&event) {
                        self.trees.opened(directory.id);
                        self.trees.begin(directory.fd, directory.id, Depth::All);
                    }
                }
                Kind::Entered => {
                    self.trees.opened(event.id);
                }
            }
            if slow >= SLOW {
                for directory in recent.drain(..) {
                    self.read_ahead(directory);
                }
            }
        }
        reader.lost()
    }

    /// Reads a directory that the program is in. If the program came there from another one, it goes through a tree: then
    /// the tree is read.
    fn read_ahead(&self, directory: Directory) {
        // An earlier one of the recent directories may have led to it.
        if self.trees.covers(directory.id) {
            return;
        }
        let mut top = (directory, Depth::One);
        while let Some(parent) = top.0.parent()
            && self.trees.has_opened(parent.id)
        {
            top = (parent, Depth::All);
        }
        self.trees.begin(top.0.fd, top.0.id, top.1);
    }
}

impl Following {
    /// Ends it. Processes that the program has left behind no longer send events.
    pub fn stop(mut self) -> Activity {
        self.channel.listen(false);
        self.stop.store(true, Ordering::Relaxed);
        let lost = self.thread.take().and_then(|thread| thread.join().ok());
        Activity {
            counts: self.channel.counts(),
            lost: lost.unwrap_or(0),
        }
    }
}

/// A directory that a program has opened, opened again.
struct Directory {
    fd: OwnedFd,
    id: Id,
    /// Its listing takes many requests of the disk.
    is_large: bool,
}

impl Directory {
    /// `None` if the program has closed it, or its files are not on a disk.
    fn of(event: &Event) -> Option<Directory> {
        let process = PathBuf::from(format!("/proc/{}", event.pid));
        let path = match event.path.as_slice() {
            [] => process.join(format!("fd/{}", event.fd)),
            [b'/', below @ ..] => process.join("root").join(path(below)),
            below => process.join("cwd").join(path(below)),
        };
        let fd = open(path, FLAGS, Mode::empty()).ok()?;
        let directory = Directory::opened(fd)?;
        let is_it = event.id == (0, 0) || event.id == directory.id;
        (is_it && is_on_disk(&directory.fd)).then_some(directory)
    }

    fn opened(fd: OwnedFd) -> Option<Directory> {
        let stat = fstat(&fd).ok()?;
        Some(Directory {
            fd,
            id: (stat.st_dev, stat.st_ino),
            is_large: stat.st_size >= LARGE,
        })
    }

    /// Another descriptor, with a position of its own.
    fn again(&self) -> Option<OwnedFd> {
        openat(&self.fd, ".", FLAGS, Mode::empty()).ok()
    }

    /// The directory above, if there is one on the same filesystem.
    fn parent(&self) -> Option<Directory> {
        let parent = Directory::opened(openat(&self.fd, "..", FLAGS, Mode::empty()).ok()?)?;
        (parent.id.0 == self.id.0 && parent.id != self.id).then_some(parent)
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
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
