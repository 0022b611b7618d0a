//! The files that the processes of a program have open or mapped, by proc(5).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, makedev, openat, statx};

use crate::directory::{FLAGS, Id};

/// The processes of a program.
pub struct Processes {
    /// Their numbers, and the times of their starts: the number of one that has ended is used again.
    known: HashMap<u32, u64>,
    /// The directory of the control group of the program, if it has one of its own.
    pub group: Option<PathBuf>,
    /// Threads that have sent an event. The number may be that of another thread, if it comes from
    /// another PID namespace.
    threads: HashSet<u32>,
    /// Returns true if the library does not see the calls of a program although it is loaded.
    pub is_unseen: Option<fn(&Path) -> bool>,
    /// The results of `is_unseen`, by program.
    asked: HashMap<PathBuf, bool>,
    /// The processes whose calls the library does not see: their programs, and the bytes that they
    /// have read from disks. They are looked for if `is_unseen` is set.
    unseen: HashMap<u32, (PathBuf, u64)>,
}

/// The files that are in use.
#[derive(Default)]
pub struct Uses {
    /// Of some open files, the lowest position at which one is read or written.
    positions: HashMap<Id, u64>,
    /// The paths in proc(5) of descriptors of the files whose position is wanted.
    paths: HashMap<Id, PathBuf>,
    /// The inode numbers of mapped files. proc(5) has another device than stat(2) for files of
    /// btrfs, and of some overlays. So a file on another device may count as mapped.
    mapped: HashSet<u64>,
}

impl Uses {
    /// `None` if the file is not in use. The position is 0 if it is not known.
    pub fn position(&self, id: Id) -> Option<u64> {
        match self.mapped.contains(&id.1) {
            true => Some(0),
            false => self.positions.get(&id).copied(),
        }
    }

    /// A path in proc(5) that leads to an open file although it has no name.
    pub fn path(&self, id: Id) -> Option<&Path> {
        self.paths.get(&id).map(PathBuf::as_path)
    }

    fn add(&mut self, id: Id, position: u64) {
        let lowest = self.positions.entry(id).or_insert(position);
        *lowest = position.min(*lowest);
    }
}

impl Processes {
    /// The process of the program, and those that it starts.
    pub fn of(program: Option<u32>) -> Processes {
        let mut processes = Processes {
            known: HashMap::new(),
            group: None,
            threads: HashSet::new(),
            is_unseen: None,
            asked: HashMap::new(),
            unseen: HashMap::new(),
        };
        program.map(|program| processes.insert(program));
        processes
    }

    /// Adds a process. Returns false if it is known, or has ended.
    fn insert(&mut self, process: u32) -> bool {
        if self.known.contains_key(&process) {
            return false;
        }
        let start = start_time(process);
        self.known.extend(start.map(|start| (process, start)));
        start.is_some()
    }

    /// Adds the process of a thread, which may have left its parents.
    pub fn add(&mut self, thread: u32) {
        const MAX_THREADS: usize = 10_000;
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        if self.threads.insert(thread)
            && !self.known.contains_key(&thread)
            && has_channel(thread) == Some(true)
            && let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status"))
            && let Some(process) = status.lines().find_map(|line| line.strip_prefix("Tgid:"))
            && let Ok(process) = process.trim().parse()
        {
            self.insert(process);
        }
    }

    /// All processes. Some may have ended just now.
    pub fn all(&mut self) -> Vec<u32> {
        self.remove_ended();
        if let Some(group) = &self.group {
            for process in processes_of(group) {
                self.insert(process);
            }
        }
        let mut waiting: Vec<u32> = self.known.keys().copied().collect();
        while let Some(process) = waiting.pop() {
            let children = children(process).into_iter();
            waiting.extend(children.filter(|child| self.insert(*child)));
        }
        self.known.keys().copied().collect()
    }

    /// Forgets the processes that have ended. A later one with the same number may be one of the program.
    fn remove_ended(&mut self) {
        let is_over = |(process, start): (&u32, &u64)| {
            (start_time(*process) != Some(*start)).then_some(*process)
        };
        let ended: Vec<u32> = self.known.iter().filter_map(is_over).collect();
        for process in ended {
            self.remove(process);
            self.add(process);
        }
    }

    /// Forgets a process that has ended.
    pub fn remove(&mut self, process: u32) {
        self.known.remove(&process);
        self.threads.remove(&process);
    }

    /// The files that the processes and their children use. `is_large` chooses the files whose
    /// position is wanted.
    pub fn uses(&mut self, is_large: impl Fn(Id) -> bool) -> Uses {
        let mut uses = Uses::default();
        for process in self.all() {
            if descriptors(process, &is_large, &mut uses).is_none() {
                self.remove(process);
                continue;
            }
            let has_library = mappings(process, &mut uses);
            self.look(process, has_library);
        }
        uses
    }

    /// Looks if the library sees the calls of a process, which may have executed another program.
    fn look(&mut self, process: u32, has_library: bool) {
        let Some(is_unseen) = self.is_unseen else {
            return;
        };
        let Ok(program) = fs::read_link(format!("/proc/{process}/exe")) else {
            return;
        };
        let is_seen = has_library && {
            let asked = self.asked.entry(program.clone());
            !*asked.or_insert_with(|| is_unseen(&program))
        };
        match read_bytes(process).filter(|_| !is_seen) {
            Some(bytes) => self.unseen.insert(process, (program, bytes)),
            None => self.unseen.remove(&process),
        };
    }

    /// The programs whose calls the library has not seen, with the bytes that they have read from
    /// disks, at least. The pages of the program's file and few others are not counted.
    pub fn unseen(&self) -> BTreeMap<PathBuf, u64> {
        const FEW: u64 = 1 << 20;
        let mut sums = BTreeMap::new();
        for (program, bytes) in self.unseen.values() {
            let own = fs::metadata(program).map_or(0, |it| it.len());
            if let Some(bytes) = bytes.checked_sub(own).filter(|&bytes| bytes >= FEW) {
                *sums.entry(program.clone()).or_default() += bytes;
            }
        }
        sums
    }
}

/// The processes of a control group and of the groups below it.
fn processes_of(group: &Path) -> Vec<u32> {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let numbers = list.lines().filter_map(|line| line.parse::<u32>().ok());
    // Processes of another PID namespace have the number 0 in version 2.
    let mut processes: Vec<u32> = numbers.filter(|process| *process != 0).collect();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            processes.extend(processes_of(&entry.path()));
        }
    }
    processes
}

/// The time of a process's start after that of the system, in clock ticks. `None` if the process has ended.
fn start_time(process: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain any bytes.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// The bytes that a process has read from disks.
fn read_bytes(process: u32) -> Option<u64> {
    let counts = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let count = |line: &str| line.strip_prefix("read_bytes: ")?.parse().ok();
    counts.lines().find_map(count)
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let mut children = Vec::new();
    for list in lists {
        children.extend(
            list.split_whitespace()
                .filter_map(|it| it.parse::<u32>().ok()),
        );
    }
    children
}

/// Adds the files that a process has open. `None` if it has ended, or must not be looked at.
fn descriptors(process: u32, is_large: &impl Fn(Id) -> bool, uses: &mut Uses) -> Option<()> {
    let path = format!("/proc/{process}/fd");
    let directory = openat(CWD, &path, FLAGS, Mode::empty()).ok()?;
    for entry in rustix::fs::Dir::read_from(&directory).ok()?.flatten() {
        let fields = StatxFlags::INO;
        // The kernel does not ask a server with this flag.
        let Ok(stat) = statx(
            &directory,
            entry.file_name(),
            AtFlags::STATX_DONT_SYNC,
            fields,
        ) else {
            continue;
        };
        let id = (
            makedev(stat.stx_dev_major, stat.stx_dev_minor),
            stat.stx_ino,
        );
        let position = match is_large(id) {
            true => {
                let name = entry.file_name().to_str().unwrap_or_default();
                uses.paths.insert(id, format!("{path}/{name}").into());
                position(&directory, name)
            }
            false => None,
        };
        uses.add(id, position.unwrap_or(0));
    }
    Some(())
}

/// The position of a descriptor.
fn position(descriptors: &OwnedFd, name: &str) -> Option<u64> {
    let path = format!("../fdinfo/{name}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = fs::File::from(openat(descriptors, path, flags, Mode::empty()).ok()?);
    let text = std::io::read_to_string(file).ok()?;
    text.strip_prefix("pos:")?
        .lines()
        .next()?
        .trim()
        .parse()
        .ok()
}

/// Returns true if a process has mapped a channel. `None` if it has ended, or must not be looked at.
pub fn has_channel(process: u32) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    Some(maps.contains("/memfd:nowait-ahead"))
}

/// Adds the files that a process has mapped. Returns true if the library and its channel are among them. A process of
/// another user namespace may not open the channel.
fn mappings(process: u32, uses: &mut Uses) -> bool {
    let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let (mut has_library, mut has_channel) = (false, false);
    for line in maps.split(|&byte| byte == b'\n') {
        has_library |= line.ends_with(b"/libnowait_ahead.so");
        let line = String::from_utf8_lossy(line);
        has_channel |= line.contains("/memfd:nowait-ahead");
        let inode = line.split_ascii_whitespace().nth(4);
        if let Some(inode @ 1..) = inode.and_then(|word| word.parse().ok()) {
            uses.mapped.insert(inode);
        }
    }
    has_library && has_channel
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;

    fn file() -> (fs::File, Id) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 20_000]).unwrap();
        let stat = file.metadata().unwrap();
        let id = (stat.dev(), stat.ino());
        (file, id)
    }

    /// Waits for a position. A child of another test has the descriptors of this process until it executes its program.
    fn settles(position: impl Fn() -> Option<u64>, wanted: Option<u64>) {
        test_support::limit::wait_until(&format!("{wanted:?}"), || position() == wanted);
    }

    /// The position of a file that this process or one of its children uses.
    fn position(id: Id, is_large: bool) -> Option<u64> {
        let mut processes = Processes::of(None);
        processes.insert(std::process::id());
        processes.uses(|_| is_large).position(id)
    }

    #[test]
    fn the_processes_of_others_are_not_looked_at() {
        let mut processes = Processes::of(None);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        [1, 2, child.id()]
            .into_iter()
            .for_each(|it| processes.add(it));
        assert!(processes.known.is_empty());
        let (_channel, _memory) = nowait_ahead_channel::Channel::create(7).unwrap();
        processes.add(
            rustix::process::getpid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        );
        assert!(processes.known.contains_key(&std::process::id()));
        let mut processes = Processes::of(Some(std::process::id()));
        processes.uses(|_| true);
        assert!(processes.known.contains_key(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_lowest_position_counts() {
        let (mut file, id) = file();
        file.seek(SeekFrom::Start(12_345)).unwrap();
        settles(|| position(id, true), Some(12_345));
        settles(|| position(id, false), Some(0));
        // This descriptor has a position of its own.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let mut other = fs::File::open(path).unwrap();
        other.seek(SeekFrom::Start(77)).unwrap();
        settles(|| position(id, true), Some(77));
        drop(other);
        settles(|| position(id, true), Some(12_345));
        drop(file);
        settles(|| position(id, true), None);
    }

    /// The library has not reported these processes, and no known process has started them. Ordinary directories and files stand for
    /// the groups.
    #[test]
    fn files_of_all_processes_of_a_control_group_are_in_use() {
        let group = tempfile::tempdir().unwrap();
        let below = group.path().join("below");
        fs::create_dir(&below).unwrap();
        let mut processes = Processes::of(None);
        processes.group = Some(group.path().to_owned());
        let [own, of_group_below] = [group.path(), &below].map(|group| {
            let (file, id) = file();
            let mut command = Command::new("sleep");
            let child = command.arg("600").stderr(file).spawn().unwrap();
            fs::write(group.join("cgroup.procs"), format!("0\n{}\n", child.id())).unwrap();
            (child, id)
        });
        let uses = processes.uses(|_| true);
        let positions = [own, of_group_below].map(|(mut child, id)| {
            child.kill().unwrap();
            child.wait().unwrap();
            uses.position(id)
        });
        assert_eq!(positions, [Some(20_000); 2]);
        assert!(!processes.known.contains_key(&0));
    }

    #[test]
    fn a_later_process_with_the_number_of_one_that_has_ended_is_not_of_the_program() {
        let mut processes = Processes::of(None);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(processes.insert(child.id()));
        assert_eq!(processes.all(), [child.id()]);
        *processes.known.get_mut(&child.id()).unwrap() -= 1;
        assert_eq!(processes.all(), []);
        // This process has a channel, as one of the program has.
        let (_channel, _memory) = nowait_ahead_channel::Channel::create(7).unwrap();
        let own = std::process::id();
        processes.known.insert(own, 0);
        processes.threads.insert(own);
        assert!(processes.all().contains(&own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!processes.all().contains(&child.id()));
    }

    #[test]
    fn a_mapped_file_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("sleep");
        slowdisk::copy_program("/bin/sleep", &program).unwrap();
        let stat = program.metadata().unwrap();
        let id = (stat.dev(), stat.ino());
        settles(|| position(id, true), None);
        let mut child = Command::new(&program).arg("600").spawn().unwrap();
        settles(|| position(id, true), Some(0));
        child.kill().unwrap();
        child.wait().unwrap();
        settles(|| position(id, true), None);
    }

    #[test]
    fn a_file_of_a_child_is_in_use_until_the_child_ends() {
        let (file, id) = file();
        let mut command = Command::new("sh");
        command.args(["-c", "read _"]).stdin(Stdio::piped());
        let mut child = command.stderr(file).spawn().unwrap();
        drop(command);
        settles(|| position(id, true), Some(20_000));
        drop(child.stdin.take());
        child.wait().unwrap();
        settles(|| position(id, true), None);
    }
}
