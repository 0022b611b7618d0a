//! Follows a program by what libnowait_ahead.so tells, and decides what is read ahead.

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
use rustix::fs::{Mode, OFlags, fstat, fstatfs, open};

use super::trees::{Depth, Id, Place, Trees};
use crate::problem::Problem;

/// What is needed to follow a program.
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

/// The sums of what the program told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// The calls of stat(2).
    pub counts: Counts,
    /// The events that were not read in time.
    pub lost: u64,
}

/// The number of slow calls of stat(2) after which the program's directories are read ahead.
const SLOW: u32 = 4;
/// The number of opened directories that are remembered until then.
const RECENT: usize = 8;
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
                Kind::Opened | Kind::Listing => {
                    let directory = Directory::of(&event);
                    let id = directory
                        .as_ref()
                        .map_or(event.id, |directory| directory.id);
                    if self.trees.opened(id) == Place::Outside
                        && let Some(directory) = directory
                    {
                        if recent.len() == RECENT {
                            recent.pop_back();
                        }
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
                    self.trees.begin(directory.fd, directory.id, Depth::One);
                }
            }
        }
        reader.lost()
    }
}

impl Following {
    /// Ends it.
    pub fn stop(mut self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        let lost = self.thread.take().and_then(|thread| thread.join().ok());
        Told {
            counts: self.channel.counts(),
            lost: lost.unwrap_or(0),
        }
    }
}

/// A directory that a program has opened, opened again.
struct Directory {
    fd: OwnedFd,
    id: Id,
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = open(path, flags, Mode::empty()).ok()?;
        let stat = fstat(&fd).ok()?;
        let id = (stat.st_dev, stat.st_ino);
        let is_it = event.id == (0, 0) || event.id == id;
        (is_it && is_on_disk(&fd)).then_some(Directory { fd, id })
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
