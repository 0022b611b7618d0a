//! The processes that map a file. `/proc/PID/maps` of every process is read once, on the first
//! query.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use rustix::fs::{Stat, major, minor};
use rustix::io::Errno;

use crate::proc::{self, Mapping};

/// A process that maps a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingProcess {
    /// The process ID.
    pub pid: u32,
    /// The process's name; `?` if it is unknown.
    pub command: String,
    /// True if the process has locked the mapping with mlock(2).
    pub locked: bool,
}

/// All processes that map files; `None` before the first query.
#[derive(Debug, Default)]
pub struct MappingProcesses(Option<Mappings>);

#[derive(Debug, Default)]
struct Mappings {
    /// The mappings, by inode number.
    mapped: HashMap<u64, Vec<Mapped>>,
    /// The number of processes whose maps may not be read.
    unreadable: u64,
}

#[derive(Debug)]
struct Mapped {
    device: (u32, u32),
    path: Vec<u8>,
    process: MappingProcess,
}

impl MappingProcesses {
    /// The processes that map this file.
    pub fn of(&mut self, file: &Stat, path: &Path) -> Vec<MappingProcess> {
        let known = self.0.get_or_insert_with(Mappings::read);
        let Some(mapped) = known.mapped.get(&file.st_ino) else {
            return Vec::new();
        };
        let device = (major(file.st_dev), minor(file.st_dev));
        // On btrfs and overlayfs the device in maps differs from stat(2); the path is compared
        // there.
        let canonical = proc::in_maps(&fs::canonicalize(path).unwrap_or_default());
        let same = |mapped: &&Mapped| mapped.device == device || mapped.path == canonical;
        mapped
            .iter()
            .filter(same)
            .map(|m| m.process.clone())
            .collect()
    }

    /// The number of processes whose maps may not be read; `None` without a query.
    pub fn unreadable(&self) -> Option<u64> {
        self.0.as_ref().map(|known| known.unreadable)
    }
}

impl Mappings {
    fn read() -> Mappings {
        let mut known = Mappings::default();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let name = process.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                match known.process(pid, &process.path()) {
                    Ok(()) => {}
                    // The process has ended. It maps nothing.
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                    Err(_) => known.unreadable += 1,
                }
            }
        }
        known
    }

    fn process(&mut self, pid: u32, directory: &Path) -> std::io::Result<()> {
        // Reading smaps costs much more than maps. It is read only for processes with locked
        // memory.
        let status = fs::read(directory.join("status"))?;
        let locks = proc::number_of(&status, "VmLck:").is_some_and(|kib| kib > 0);
        let name = proc::value_of(&status, "Name:").unwrap_or(b"?");
        let command = String::from_utf8_lossy(name).into_owned();
        let maps = fs::File::open(directory.join(if locks { "smaps" } else { "maps" }))?;
        let mut last = None;
        for line in BufReader::new(maps).split(b'\n') {
            let line = line?;
            if let Some(Mapping {
                inode,
                device,
                path,
                ..
            }) = Mapping::of(&line)
            {
                let of_inode = self.mapped.entry(inode).or_default();
                let known = |m: &Mapped| m.process.pid == pid && m.device == device;
                let at = of_inode.iter().position(known).unwrap_or_else(|| {
                    of_inode.push(Mapped {
                        device,
                        path,
                        process: MappingProcess {
                            pid,
                            command: command.clone(),
                            locked: false,
                        },
                    });
                    of_inode.len() - 1
                });
                last = Some((inode, at));
            } else if proc::begins_mapping(&line) {
                last = None;
            } else if let Some((inode, at)) = last
                && proc::says_locked(&line)
                && let Some(of_inode) = self.mapped.get_mut(&inode)
            {
                of_inode[at].process.locked = true;
            }
        }
        Ok(())
    }
}
