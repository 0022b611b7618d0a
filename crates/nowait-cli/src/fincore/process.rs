//! The files that processes have open or mapped, from /proc/PID/fd and /proc/PID/maps.
//!
//! A file is opened by its link in /proc/PID/fd or /proc/PID/map_files, so that removed and replaced
//! files, and those of another mount namespace, are the files that the process uses.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nowait_page_cache::proc::{self, Mapping};
use nowait_page_cache::{FileRef, PseudoDevices};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::messages::Messages;

/// The files of processes.
#[derive(Default)]
pub struct ProcessFiles {
    /// Each file, with the path that opens it, in the order of descriptors and addresses.
    files: Vec<FileRef>,
    /// The paths that the process uses, by the paths that open the files.
    names: HashMap<PathBuf, PathBuf>,
    /// Device, inode number and path of each file.
    seen: HashSet<(u64, u64, PathBuf)>,
    /// Inode number and path of each file. On btrfs and overlayfs the device in /proc/PID/maps differs.
    found: HashSet<(u64, PathBuf)>,
}

impl ProcessFiles {
    /// The files of these processes. Failures are reported.
    pub fn of(pids: &[u32], messages: &Messages) -> ProcessFiles {
        let mut files = ProcessFiles::default();
        for &pid in pids {
            let directory = PathBuf::from(format!("/proc/{pid}"));
            let done = files
                .open(pid, &directory.join("fd"))
                .and_then(|()| files.mapped(pid, &directory, messages));
            match done {
                Ok(()) => {}
                Err(e) if is_gone(&e) => messages.failure(&directory, "no such process"),
                Err(e) => messages.failure(&directory, e),
            }
        }
        files
    }

    /// Calls `each` with every file.
    pub fn visit<E>(&self, each: &mut dyn FnMut(FileRef) -> Result<(), E>) -> Result<(), E> {
        self.files.iter().cloned().try_for_each(each)
    }

    /// The same file with the path that its process uses.
    pub fn named(&self, mut file: FileRef) -> FileRef {
        if let Some(name) = self.names.get(&file.path) {
            file.path.clone_from(name);
        }
        file
    }

    fn open(&mut self, pid: u32, directory: &Path) -> io::Result<()> {
        let pseudo = PseudoDevices::of(pid);
        let mut descriptors = Vec::new();
        for entry in fs::read_dir(directory)? {
            let number = entry?.file_name();
            descriptors.extend(proc::number(number.as_bytes()));
        }
        descriptors.sort_unstable();
        for number in descriptors {
            let link = directory.join(number.to_string());
            // A descriptor may be closed meanwhile.
            let (Ok(name), Ok(stat)) = (fs::read_link(&link), fs::metadata(&link)) else {
                continue;
            };
            if pseudo.kind(stat.dev()).is_none() {
                self.add(link, name, &stat);
            }
        }
        Ok(())
    }

    fn mapped(&mut self, pid: u32, directory: &Path, messages: &Messages) -> io::Result<()> {
        let maps = fs::read(directory.join("maps"))?;
        let mut reported = HashSet::new();
        for mapping in proc::lines(&maps).filter_map(Mapping::of) {
            let name = written(&mapping.path);
            // Shared memory without a name, such as /dev/zero (deleted), is a file of the kernel.
            if !name.is_absolute() || self.found.contains(&(mapping.inode, name.clone())) {
                continue;
            }
            let addresses = format!("{:x}-{:x}", mapping.addresses.start, mapping.addresses.end);
            let below = name.strip_prefix("/").unwrap_or(&name);
            let links = [
                directory.join("map_files").join(addresses),
                directory.join("root").join(below),
            ];
            let is_it = |stat: &Metadata| stat.ino() == mapping.inode;
            let found = links.into_iter().find_map(|link| {
                let stat = fs::metadata(&link).ok().filter(is_it)?;
                Some((link, stat))
            });
            match found {
                Some((link, stat)) => self.add(link, name, &stat),
                None if reported.insert(name.clone()) => {
                    let why = format_args!(
                        "mapped by process {pid}, and not to be opened: it was removed or replaced"
                    );
                    messages.failure(&name, why);
                }
                None => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, link: PathBuf, name: PathBuf, stat: &Metadata) {
        let kind = stat.file_type();
        let mut is_new = || self.seen.insert((stat.dev(), stat.ino(), name.clone()));
        if (kind.is_file() || kind.is_block_device()) && is_new() {
            let kind = FileType::from_raw_mode(stat.mode());
            self.files
                .push(FileRef::given(link.clone(), stat.ino(), kind));
            self.found.insert((stat.ino(), name.clone()));
            self.names.insert(link, name);
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// The path that is written in /proc/PID/maps; see [`proc::in_maps`].
fn written(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&byte, behind)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(behind) => {
                bytes.push(b'\n');
                rest = behind;
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}
