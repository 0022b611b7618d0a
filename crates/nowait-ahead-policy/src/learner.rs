//! Learns what a program uses: the parts of files, the paths that it looks up, and the directories
//! that it lists.
//!
//! ```text
//!  libnowait_ahead.so ── Used, LookedUp, Listed … ──► channel ──┐
//!  /proc/PID/maps, pagemap, fdinfo, now and then ───────────────┼─► Learned
//!  /proc/self/mountinfo, when it changes ───────────────────────┘
//! ```
//! The library sends most of it. Processes that do not end, that are killed, and static programs
//! are looked at from time to time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nowait_ahead_channel::{Channel, Event, Kind, Listening, Reader, key, used_mappings};
use rustix::fs::OFlags;

use crate::mounts::Mounts;
use crate::path_starts::{LONGEST, PathStarts};
use crate::uses::{Processes, has_channel};

/// The paths that a program has used.
#[derive(Debug, Default)]
pub struct Learned {
    /// They are absolute, and in the order of the first use.
    pub paths: Vec<(PathBuf, Use)>,
    /// The mount points of used paths at which a filesystem was unmounted.
    pub unmounted: Vec<PathBuf>,
    /// The number of events that were lost, or whose paths had no room.
    pub lost: u64,
    numbers: HashMap<PathBuf, usize>,
    /// The bytes of all paths.
    path_bytes: usize,
    /// The number of parts of all files.
    parts: usize,
}

/// The use of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The parts of a file that were read or mapped, in order and apart.
    pub parts: Vec<Range<u64>>,
    /// The file was opened, or mapped.
    pub is_opened: bool,
    /// The names of the directory were listed.
    pub is_listed: bool,
    /// Many names of the directory were looked up.
    pub many_looked_up: bool,
}

/// Parts of paths that events refer to.
#[derive(Default)]
struct Names {
    starts: PathStarts,
    /// The paths of directories, by their keys.
    directories: HashMap<u64, Vec<u8>>,
}

/// A thread that learns.
pub struct Learner {
    channel: Arc<Channel>,
    stop: Arc<AtomicBool>,
    end: Receiver<()>,
}

/// Called with what was learnt.
pub type Take = Box<dyn FnOnce(Learned) + Send>;

/// The time of the first look at the processes. Each pause between two looks is twice as long as
/// the one before.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// The time after which nothing more is learnt.
pub const LEARNING_TIME: Duration = Duration::from_secs(30);
/// The time between two looks at the channel if nothing happens.
const INTERVAL: Duration = Duration::from_millis(50);
/// The longest time for which the last events are read.
const LONGEST_DRAIN: Duration = Duration::from_secs(10);
/// The maximum number of paths.
const MAX_PATHS: usize = 200_000;
/// The maximum number of bytes of all paths. Each is stored twice.
const MAX_PATH_BYTES: usize = 16 << 20;
/// The maximum number of parts of a file.
const MAX_PARTS: usize = 10_000;
/// The maximum number of parts of all files.
const MAX_ALL_PARTS: usize = 500_000;
/// The maximum number of directories whose paths are known.
const MAX_DIRECTORIES: usize = 10_000;

impl Learner {
    /// Starts the thread. It calls `take` once: when the program has ended, or after
    /// [`LEARNING_TIME`]. If the thread cannot be started, nothing is learnt. `program` is the process of
    /// the program.
    pub fn start(channel: Arc<Channel>, program: u32, take: Take) -> Learner {
        let stop = Arc::new(AtomicBool::new(false));
        let (to, end) = mpsc::channel();
        let (stopped, its) = (stop.clone(), channel.clone());
        let thread = std::thread::Builder::new().name("learn".to_owned());
        let _ = thread.spawn(move || {
            take(learn(&its, program, &stopped));
            drop(to);
        });
        Learner { channel, stop, end }
    }

    /// Waits until `take` has returned after the end of the program, at most for this time.
    pub fn stop(self, timeout: Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.channel.wake();
        let _ = self.end.recv_timeout(timeout);
    }
}

fn learn(channel: &Channel, program: u32, stopped: &AtomicBool) -> Learned {
    let mounts = Mounts::watch();
    let mut processes = Processes::of(Some(program));
    let mut learned = Learned::default();
    let mut names = Names::default();
    let mut reader = Reader::new(channel);
    let end = Instant::now() + LEARNING_TIME;
    let (mut next, mut pause) = (Instant::now() + FIRST_LOOK, FIRST_LOOK);
    while !stopped.load(Ordering::Relaxed) && Instant::now() < end {
        let until = next.min(Instant::now() + INTERVAL);
        if let Some(event) = reader.next_until(until) {
            learned.handle(&event, &mut names, &mut processes);
        }
        if Instant::now() >= next {
            learned.look_at(&mut processes);
            pause *= 2;
            next = end.min(Instant::now() + pause);
        }
    }
    if !stopped.load(Ordering::Relaxed) {
        learned.look_at(&mut processes);
    }
    channel.listen(Listening::Off);
    reader.drain(Instant::now() + LONGEST_DRAIN, |event| {
        learned.handle(event, &mut names, &mut processes);
    });
    learned.lost += reader.lost();
    learned.unmounted.extend(mounts.unmounted());
    let paths = &learned.paths;
    let is_used = |point: &PathBuf| paths.iter().any(|(path, _)| path.starts_with(point));
    learned.unmounted.retain(is_used);
    learned
}

impl Learned {
    fn handle(&mut self, event: &Event, names: &mut Names, processes: &mut Processes) {
        let mut path = || names.path_of(event);
        match event.kind {
            Kind::Started => processes.add(event.tid),
            Kind::Path => names.starts.add(event),
            Kind::Directory => {
                let path = path();
                names.add_directory(key(event.id), path);
            }
            Kind::Used => {
                let (path, part) = (path(), event.time..event.stats);
                self.add_part(path, part);
            }
            Kind::LookedUp => self.add(path(), |_| {}),
            Kind::ManyLookedUp => self.add(path(), |it| it.many_looked_up = true),
            Kind::Listed => self.add(path(), |it| it.is_listed = true),
            // A process of another PID namespace has another number here.
            Kind::Unmapping if has_channel(event.tid) == Some(true) => {
                self.add_mapped(event.tid, event.time..event.stats);
            }
            _ => {}
        }
    }

    fn add(&mut self, path: Vec<u8>, change: impl FnOnce(&mut Use)) {
        // These have no pages on a disk, and some of them have another meaning in each process. The
        // kernel marks files that were removed.
        let is_other = |of: &[u8]| path.starts_with(of);
        if !path.starts_with(b"/")
            || path.len() >= LONGEST
            || path.contains(&0)
            || path.ends_with(b" (deleted)")
            || [&b"/proc/"[..], b"/sys/", b"/dev/"]
                .into_iter()
                .any(is_other)
        {
            return;
        }
        let path = PathBuf::from(OsString::from_vec(path));
        let number = match self.numbers.get(&path) {
            Some(number) => *number,
            None if !self.has_room(&path) => {
                self.lost += 1;
                return;
            }
            None => {
                self.path_bytes += path.as_os_str().len();
                self.numbers.insert(path.clone(), self.paths.len());
                self.paths.push((path, Use::default()));
                self.paths.len() - 1
            }
        };
        let used = &mut self.paths[number].1;
        let before = used.parts.len();
        change(used);
        self.parts = self.parts + used.parts.len() - before;
    }

    /// A program may write anything into the channel.
    fn has_room(&self, path: &Path) -> bool {
        self.paths.len() < MAX_PATHS && self.path_bytes + path.as_os_str().len() <= MAX_PATH_BYTES
    }

    fn add_part(&mut self, path: Vec<u8>, part: Range<u64>) {
        let room = MAX_ALL_PARTS.saturating_sub(self.parts);
        self.add(path, |it| {
            it.add_part_within(part, MAX_PARTS.min(it.parts.len() + room));
        });
    }

    /// Looks at the mapped pages and the positions of all processes.
    fn look_at(&mut self, processes: &mut Processes) {
        for process in processes.all() {
            let is_there = self.add_mapped(process, 0..u64::MAX);
            if !is_there || self.look_at_descriptors(process).is_none() {
                processes.remove(process);
            }
        }
    }

    /// Adds the used pages of the files that a process has mapped at these addresses. Returns false if they cannot be
    /// asked for.
    fn add_mapped(&mut self, process: u32, at: Range<u64>) -> bool {
        used_mappings(Some(process), at, |path, part| {
            self.add_part(path.to_vec(), part);
        })
    }

    fn look_at_descriptors(&mut self, process: u32) -> Option<()> {
        let directory = PathBuf::from(format!("/proc/{process}"));
        for entry in fs::read_dir(directory.join("fd")).ok()?.flatten() {
            let is_file = fs::metadata(entry.path()).is_ok_and(|it| it.is_file());
            let info = directory.join("fdinfo").join(entry.file_name());
            if let Some(end) = read_to(&info).filter(|_| is_file)
                && let Ok(path) = fs::read_link(entry.path())
            {
                self.add_part(path.into_os_string().into_vec(), 0..end);
            }
        }
        Some(())
    }
}

/// The position of a descriptor that is not only written.
fn read_to(info: &Path) -> Option<u64> {
    let text = fs::read_to_string(info).ok()?;
    let value = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
    let flags = u32::from_str_radix(value("flags:")?.trim(), 8).ok()?;
    let is_written = OFlags::from_bits_retain(flags) & OFlags::ACCMODE == OFlags::WRONLY;
    value("pos:")?.trim().parse().ok().filter(|_| !is_written)
}

impl Names {
    fn add_directory(&mut self, key: u64, path: Vec<u8>) {
        if self.directories.len() >= MAX_DIRECTORIES {
            self.directories.clear();
        }
        self.directories.insert(key, path);
    }

    /// The path of an event. It is empty if it is relative to a directory that is not known.
    fn path_of(&mut self, event: &Event) -> Vec<u8> {
        let path = self.starts.complete(event);
        if event.pages == 0 || event.kind == Kind::Directory {
            return path;
        }
        match self.directories.get(&event.pages).map(Vec::as_slice) {
            None => Vec::new(),
            Some(b"/") => [b"/", path.as_slice()].concat(),
            Some(directory) if path.is_empty() => directory.to_vec(),
            Some(directory) => [directory, b"/", &path].concat(),
        }
    }
}

impl Use {
    /// Adds a part, which may be empty.
    pub fn add_part(&mut self, part: Range<u64>) {
        self.add_part_within(part, MAX_PARTS);
    }

    /// Adds a part, unless there are then more than `max`.
    fn add_part_within(&mut self, part: Range<u64>, max: usize) {
        self.is_opened = true;
        if part.start >= part.end {
            return;
        }
        let begin = self.parts.partition_point(|it| it.end < part.start);
        let end = self.parts.partition_point(|it| it.start <= part.end);
        let touched = &self.parts[begin..end];
        let start = touched
            .first()
            .map_or(part.start, |it| it.start.min(part.start));
        let last = touched.last().map_or(part.end, |it| it.end.max(part.end));
        if begin < end || self.parts.len() < max {
            self.parts.splice(begin..end, std::iter::once(start..last));
            // The number of parts that are stored is bounded, so their memory is, too.
            if self.parts.capacity() > 4 * self.parts.len() {
                self.parts.shrink_to(2 * self.parts.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_order_and_apart() {
        let mut used = Use::default();
        for part in [8..12, 0..4, 20..24, 5..5, 12..14, 3..5] {
            used.add_part(part);
        }
        assert_eq!(used.parts, [0..5, 8..14, 20..24]);
        used.add_part(2..22);
        assert_eq!(used.parts.as_slice(), std::slice::from_ref(&(0..24)));
    }

    /// A program may write anything into the channel.
    #[test]
    fn the_bytes_of_all_paths_are_bounded() {
        let mut learned = Learned::default();
        let long = "x".repeat(LONGEST - 20);
        for number in 0..2 * MAX_PATH_BYTES / LONGEST {
            learned.add(format!("/{number:08}/{long}").into_bytes(), |_| {});
        }
        let paths = (learned.paths.len() as u64, learned.lost);
        assert_eq!(paths.0 + paths.1, (2 * MAX_PATH_BYTES / LONGEST) as u64);
        let bytes = learned.paths.iter().map(|(path, _)| path.as_os_str().len());
        let bytes: usize = bytes.sum();
        assert!(
            (MAX_PATH_BYTES - LONGEST..=MAX_PATH_BYTES).contains(&bytes),
            "{bytes}"
        );
    }

    #[test]
    fn the_parts_of_all_files_are_bounded() {
        let mut learned = Learned::default();
        let path = |number: usize| format!("/{number}").into_bytes();
        for number in 0..MAX_ALL_PARTS / MAX_PARTS + 2 {
            for part in (0..MAX_PARTS as u64).map(|at| 2 * at..2 * at + 1) {
                learned.add_part(path(number), part);
            }
        }
        let parts = |learned: &Learned| {
            let parts = learned.paths.iter().map(|(_, used)| used.parts.len());
            parts.sum::<usize>()
        };
        assert_eq!(parts(&learned), MAX_ALL_PARTS);
        // This part joins all of the file, so that there is room for others.
        learned.add_part(path(0), 0..2 * MAX_PARTS as u64);
        learned.add_part(path(0), u64::MAX - 1..u64::MAX);
        assert_eq!(parts(&learned), MAX_ALL_PARTS - MAX_PARTS + 2);
    }

    #[test]
    fn parts_that_were_joined_need_no_memory() {
        let mut learned = Learned::default();
        for number in 0..100 {
            let path = || format!("/{number}").into_bytes();
            for part in (0..MAX_PARTS as u64).map(|at| 2 * at..2 * at + 1) {
                learned.add_part(path(), part);
            }
            learned.add_part(path(), 0..2 * MAX_PARTS as u64);
        }
        let parts = learned.paths.iter().map(|(_, used)| used.parts.capacity());
        assert!(parts.sum::<usize>() <= 4 * learned.paths.len());
    }

    #[test]
    fn uses_are_in_the_order_of_the_first_one() {
        let (channel, _memory) = Channel::create(1).unwrap();
        let long = [b"/", "x".repeat(1000).as_bytes()].concat();
        channel.tell_use(Kind::LookedUp, 1, b"/b", 0..0);
        channel.tell_use(Kind::Used, 1, &long, 0..7);
        channel.tell_use(Kind::Used, 2, b"/a", 0..0);
        channel.tell_use(Kind::Used, 1, b"/b", 4..8);
        channel.tell_use(Kind::Listed, 1, b"/c", 0..0);
        channel.tell_use(Kind::Used, 1, b"relative", 0..1);
        channel.tell_directory(2, b"/c", (1, 2));
        channel.tell_use_below(Kind::LookedUp, 1, b"d", key((1, 2)));
        channel.tell_use_below(Kind::ManyLookedUp, 3, b"", key((1, 2)));
        channel.tell_use_below(Kind::LookedUp, 1, b"d", key((1, 3)));
        channel.tell_use(Kind::Used, 1, b"/proc/self/maps", 0..1);
        channel.tell_use(Kind::Used, 1, b"/a\0b", 0..1);
        channel.tell_use(Kind::Used, 1, b"/tmp/removed (deleted)", 0..1);
        channel.tell_use_below(Kind::LookedUp, 4, &b"d/".repeat(2047), key((1, 2)));
        let learned = learn(&channel, std::process::id(), &AtomicBool::new(true));
        let paths: Vec<&[u8]> = learned
            .paths
            .iter()
            .map(|(path, _)| path.as_os_str().as_encoded_bytes())
            .collect();
        assert_eq!(paths, [b"/b", &long[..], b"/a", b"/c", b"/c/d"]);
        let uses: Vec<&Use> = learned.paths.iter().map(|(_, used)| used).collect();
        assert_eq!(uses[0].parts.first(), Some(&(4..8)));
        assert_eq!(uses[1].parts.first(), Some(&(0..7)));
        assert!(uses[2].is_opened && uses[2].parts.is_empty());
        assert!(uses[3].is_listed && uses[3].many_looked_up && !uses[3].is_opened);
        assert!(!channel.is_listening(Listening::Directories));
    }
}
