//! The files that processes have open or mapped, from /proc/PID/fd and /proc/PID/maps.
//!
//! A file is opened by its link in /proc/PID/fd or /proc/PID/map_files, so that removed and replaced
//! files, and those of another mount namespace, are the files that the process uses.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nowait_page_cache::proc::{self, Mapping};
use nowait_page_cache::{FileRef, PseudoDevices};
use nowait_residency::device;
use rustix::fs::{FileType, major, minor};
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
    pub fn named(&self, file: FileRef) -> FileRef {
        match self.names.get(&*file.path()) {
            Some(name) => file.with_path(name.clone()),
            None => file,
        }
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
            let place = Place::of(&mapping, directory);
            let name = place.name(&mapping);
            // Shared memory without a name, such as /dev/zero (deleted), is a file of the kernel.
            if !name.is_absolute() || self.found.contains(&(mapping.inode, name.clone())) {
                continue;
            }
            let links = [place.link.clone(), place.below_root(&name)];
            let found = links.into_iter().find_map(|link| {
                let stat = is_mapped(&link, &mapping)?;
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

/// The ways to the file of a mapping.
struct Place {
    /// The link in /proc/PID/map_files.
    link: PathBuf,
    /// /proc/PID/root.
    root: PathBuf,
}

impl Place {
    fn of(mapping: &Mapping, directory: &Path) -> Place {
        let addresses = format!("{:x}-{:x}", mapping.addresses.start, mapping.addresses.end);
        Place {
            link: directory.join("map_files").join(addresses),
            root: directory.join("root"),
        }
    }

    /// The path of the file. /proc/PID/maps writes a newline as \012, and these four characters, too. The
    /// link has the path as it is; without it, the file at the path decides.
    fn name(&self, mapping: &Mapping) -> PathBuf {
        let written: &Path = OsStr::from_bytes(&mapping.path).as_ref();
        let decoded = decoded(&mapping.path);
        if decoded == written {
            return decoded;
        }
        if let Ok(name) = fs::read_link(&self.link) {
            return name;
        }
        match is_mapped(&self.below_root(&decoded), mapping) {
            Some(_) => decoded,
            None => written.to_owned(),
        }
    }

    fn below_root(&self, name: &Path) -> PathBuf {
        self.root.join(name.strip_prefix("/").unwrap_or(name))
    }
}

/// The metadata of the file at a path, if it is the mapped one.
fn is_mapped(path: &Path, mapping: &Mapping) -> Option<Metadata> {
    let stat = fs::metadata(path).ok()?;
    let number = (major(stat.dev()), minor(stat.dev()));
    let may_differ = || rustix::fs::statfs(path).is_ok_and(|it| !device::is_that_of_stat(&it));
    let is_it = stat.ino() == mapping.inode && (number == mapping.device || may_differ());
    is_it.then_some(stat)
}

/// A path of /proc/PID/maps with newlines for \012.
fn decoded(written: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((&byte, behind)) = rest.split_first() {
        let (byte, behind) = match rest.strip_prefix(b"\\012") {
            Some(behind) => (b'\n', behind),
            None => (byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    OsString::from_vec(bytes).into()
}
