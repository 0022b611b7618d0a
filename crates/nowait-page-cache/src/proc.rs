//! Parsers for files of /proc about mounts and mappings. They work on bytes, because names of
//! processes, mounts and files may contain any bytes.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use nowait_residency::proc::{lines, number, number_of, read, unescaped, value_of};

/// The memory in bytes that the kernel estimates to be available without swapping (MemAvailable of
/// /proc/meminfo).
pub fn available_memory() -> Option<u64> {
    let kib = number_of(&read("/proc/meminfo"), "MemAvailable:")?;
    kib.checked_mul(1 << 10)
}

/// The mount point and the filesystem's type in a line of /proc/PID/mountinfo
/// (proc_pid_mountinfo(5)).
pub fn mount(line: &[u8]) -> Option<(PathBuf, String)> {
    let mut words = line.split(|byte| *byte == b' ');
    let point = words.nth(4)?;
    // The number of optional fields varies. A hyphen ends them.
    words.find(|word| word == b"-")?;
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    Some((unescaped(point), kind))
}

/// The major and minor number of the filesystem's device in a line of /proc/PID/mountinfo.
pub fn mount_device(line: &[u8]) -> Option<(u32, u32)> {
    let word = line.split(|byte| *byte == b' ').nth(2)?;
    let at = word.iter().position(|byte| *byte == b':')?;
    let part = |digits| number(digits)?.try_into().ok();
    Some((part(&word[..at])?, part(&word[at + 1..])?))
}

/// The mapping of a file in a line of /proc/PID/maps or smaps (proc_pid_maps(5)).
#[derive(Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The addresses.
    pub addresses: Range<u64>,
    /// The position in the file of the first address, in bytes.
    pub offset: u64,
    /// The number of the inode.
    pub inode: u64,
    /// The major and minor number of the device.
    pub device: (u32, u32),
    /// The path as it is written in the file; see [`in_maps`].
    pub path: Vec<u8>,
}

impl Mapping {
    /// Parses a line; `None` for memory without a file and for other lines of smaps.
    pub fn of(line: &[u8]) -> Option<Mapping> {
        // 7f00-7f01 r--p 00000000 fd:1a 2097164      /a dir/it's.so
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut text = || words.next().and_then(|word| std::str::from_utf8(word).ok());
        let (addresses, _perms, offset) = (text()?, text()?, text()?);
        let (start, end) = addresses.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        let (major, minor) = text()?.split_once(':')?;
        let device = (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        );
        let inode = text()?.parse().ok().filter(|&inode| inode != 0)?;
        let path = words.next().unwrap_or_default().trim_ascii_start().to_vec();
        Some(Mapping {
            addresses: hex(start)?..hex(end)?,
            offset: hex(offset)?,
            inode,
            device,
            path,
        })
    }
}

/// Encodes a path as in /proc/PID/maps: newlines are written as octal digits, other bytes
/// unchanged.
pub fn in_maps(path: &Path) -> Vec<u8> {
    let mut written = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' => written.extend_from_slice(b"\\012"),
            byte => written.push(*byte),
        }
    }
    written
}

/// Returns true if a line of smaps begins a mapping. Other lines begin with a word and a colon.
pub fn begins_mapping(line: &[u8]) -> bool {
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    first.last() != Some(&b':')
}

/// Returns true if a line of smaps has the VmFlags of a locked mapping.
pub fn says_locked(line: &[u8]) -> bool {
    line.strip_prefix(b"VmFlags:")
        .is_some_and(|flags| flags.split(|byte| *byte == b' ').any(|flag| flag == b"lo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_may_have_any_bytes() {
        let line = b"30 23 0:26 / /mnt/a\\040-\\040b\\012\\134c\xff rw - ext4 none rw";
        let (point, kind) = mount(line).unwrap();
        assert_eq!(point.as_os_str().as_bytes(), b"/mnt/a - b\n\\c\xff");
        assert_eq!(kind, "ext4");
        assert_eq!(mount_device(line), Some((0, 26)));
        assert_eq!(mount_device(b"30 23 026 /"), None);
    }

    #[test]
    fn mappings_are_parsed_and_other_lines_of_smaps_are_not() {
        let line = b"7f00-7f01 r--p 00001000 fd:1a 2097164      /a dir/it's.so";
        let mapping = Mapping::of(line).unwrap();
        assert_eq!(
            (mapping.addresses, mapping.offset),
            (0x7f00..0x7f01, 0x1000)
        );
        assert_eq!((mapping.inode, mapping.device), (2_097_164, (0xfd, 0x1a)));
        assert_eq!(mapping.path, b"/a dir/it's.so");
        for anonymous in [
            &b"7f00-7f01 rw-p 00000000 00:00 0 "[..],
            b"7f-80 rw-p 0 00:00 0   [heap]",
        ] {
            assert!(Mapping::of(anonymous).is_none() && begins_mapping(anonymous));
        }
        for between in [
            &b"Locked:                0 kB"[..],
            b"VmFlags: rd mr mw me lo sd",
        ] {
            assert!(Mapping::of(between).is_none() && !begins_mapping(between));
        }
        assert!(says_locked(b"VmFlags: rd mr mw me lo sd"));
        assert!(!says_locked(b"VmFlags: rd mr mw me sd"));
        assert_eq!(in_maps(Path::new("/a\n\\012")), b"/a\\012\\012");
    }
}
