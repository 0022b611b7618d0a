//! Who maps a file: `/proc/PID/maps` of every process that we may look at, read once, when a first
//! file asks.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Stat, major, minor};
use serde::Serialize;

/// A process that maps a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    pub pid: u32,
    /// Its name, as far as it is known.
    pub command: String,
    /// Whether it has locked the mapping in memory (mlock(2)).
    pub locked: bool,
}

/// Everybody who maps something.
#[derive(Default)]
pub struct Holders(Option<Known>);

#[derive(Default)]
struct Known {
    /// By inode number: the mappings of it.
    mapped: HashMap<u64, Vec<Mapping>>,
    /// How many processes could not be looked at.
    unseen: u64,
}

struct Mapping {
    device: (u32, u32),
    path: Vec<u8>,
    holder: Holder,
}

impl Holders {
    /// Who maps this file.
    pub fn of(&mut self, file: &Stat, path: &Path) -> Vec<Holder> {
        let known = self.0.get_or_insert_with(Known::look);
        let Some(mapped) = known.mapped.get(&file.st_ino) else {
            return Vec::new();
        };
        let device = (major(file.st_dev), minor(file.st_dev));
        // btrfs and overlayfs give a file another device here than in stat(2): there the path tells.
        let canonical = fs::canonicalize(path).unwrap_or_default();
        let same = |mapping: &&Mapping| {
            mapping.device == device || mapping.path == canonical.as_os_str().as_bytes()
        };
        mapped
            .iter()
            .filter(same)
            .map(|m| m.holder.clone())
            .collect()
    }

    /// How many processes could not be looked at; nothing if nobody had to be.
    pub fn unseen(&self) -> Option<u64> {
        self.0.as_ref().map(|known| known.unseen)
    }
}

impl Known {
    fn look() -> Known {
        let mut known = Known::default();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let name = process.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
                // A process that has ended meanwhile maps nothing.
                match known.process(pid, &process.path()) {
                    Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => known.unseen += 1,
                    _ => {}
                }
            }
        }
        known
    }

    fn process(&mut self, pid: u32, proc: &Path) -> std::io::Result<()> {
        // smaps is much dearer than maps, and differs only where something is locked.
        let status = fs::read_to_string(proc.join("status"))?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let locks = field("VmLck:").is_some_and(|kib| !kib.trim().starts_with("0 "));
        let command = field("Name:").unwrap_or("?").trim().to_owned();
        let maps = fs::File::open(proc.join(if locks { "smaps" } else { "maps" }))?;
        let mut last = None;
        for line in BufReader::new(maps).split(b'\n') {
            let line = line?;
            if let Some((inode, device, path)) = mapping(&line) {
                let of_inode = self.mapped.entry(inode).or_default();
                let known = |m: &Mapping| m.holder.pid == pid && m.device == device;
                let at = of_inode.iter().position(known).unwrap_or_else(|| {
                    of_inode.push(Mapping {
                        device,
                        path,
                        holder: Holder {
                            pid,
                            command: command.clone(),
                            locked: false,
                        },
                    });
                    of_inode.len() - 1
                });
                last = Some((inode, at));
            } else if is_header(&line) {
                last = None;
            } else if let Some((inode, at)) = last
                && is_locked(&line)
                && let Some(of_inode) = self.mapped.get_mut(&inode)
            {
                of_inode[at].holder.locked = true;
            }
        }
        Ok(())
    }
}

/// Inode, device and path of a line `from-to perms offset major:minor inode path`; nothing for
/// memory without a file, and for the lines between them in smaps.
fn mapping(line: &[u8]) -> Option<(u64, (u32, u32), Vec<u8>)> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let mut text = || words.next().and_then(|word| std::str::from_utf8(word).ok());
    let (_range, _perms, _offset) = (text()?, text()?, text()?);
    let (major, minor) = text()?.split_once(':')?;
    let device = (
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode = text()?.parse().ok().filter(|&inode| inode != 0)?;
    let path = words.next().unwrap_or_default().trim_ascii_start().to_vec();
    Some((inode, device, path))
}

/// Whether a line of smaps begins a mapping: the others begin with a word and a colon.
fn is_header(line: &[u8]) -> bool {
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    first.last() != Some(&b':')
}

fn is_locked(line: &[u8]) -> bool {
    line.strip_prefix(b"VmFlags:")
        .is_some_and(|flags| flags.split(|byte| *byte == b' ').any(|flag| flag == b"lo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_told_from_what_smaps_puts_between() {
        let line = b"7f00-7f01 r--p 00000000 fd:1a 2097164      /a dir/it's.so";
        let (inode, device, path) = mapping(line).unwrap();
        assert_eq!((inode, device), (2_097_164, (0xfd, 0x1a)));
        assert_eq!(path, b"/a dir/it's.so");
        for anonymous in [
            &b"7f00-7f01 rw-p 00000000 00:00 0 "[..],
            b"7f-80 rw-p 0 00:00 0   [heap]",
        ] {
            assert!(mapping(anonymous).is_none() && is_header(anonymous));
        }
        for between in [
            &b"Locked:                0 kB"[..],
            b"VmFlags: rd mr mw me lo sd",
        ] {
            assert!(mapping(between).is_none() && !is_header(between));
        }
        assert!(is_locked(b"VmFlags: rd mr mw me lo sd"));
        assert!(!is_locked(b"VmFlags: rd mr mw me sd"));
    }
}
