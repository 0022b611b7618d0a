//! Parsers for files of /proc. They work on bytes, because names of processes, mounts and files may
//! contain any bytes.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The bytes of a file of /proc; empty if it cannot be read.
pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// The lines of a text without their newlines.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|byte| *byte == b'\n')
}

/// The rest of the line that begins with a word, trimmed. The format is that of /proc/meminfo,
/// /proc/vmstat, /proc/PID/status and a cgroup's memory.stat.
pub fn value_of<'a>(text: &'a [u8], word: &str) -> Option<&'a [u8]> {
    lines(text).find_map(|line| {
        let rest = line.strip_prefix(word.as_bytes())?;
        let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
        ends.then(|| rest.trim_ascii())
    })
}

/// The number after the word at the beginning of a line, without its unit.
pub fn number_of(text: &[u8], word: &str) -> Option<u64> {
    number(
        value_of(text, word)?
            .split(u8::is_ascii_whitespace)
            .next()?,
    )
}

/// The memory in bytes that the kernel estimates to be available without swapping (MemAvailable of
/// /proc/meminfo).
pub fn available_memory() -> Option<u64> {
    let kib = number_of(&read("/proc/meminfo"), "MemAvailable:")?;
    kib.checked_mul(1 << 10)
}

/// Parses decimal digits. A sign is not accepted.
pub fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    // `parse` accepts a sign.
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

/// The version of cgroups (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// cgroup v1.
    One,
    /// cgroup v2.
    Two,
}

/// Parses a line of /proc/PID/cgroup. Returns the version of the hierarchy that has the memory
/// controller, and the path of the group in it; `None` for other lines.
pub fn memory_group(line: &[u8]) -> Option<(Version, &Path)> {
    // 4:cpu,memory:/user.slice, or 0::/user.slice
    let mut fields = line.splitn(3, |byte| *byte == b':');
    let (number, controllers) = (fields.next()?, fields.next()?);
    let path = Path::new(OsStr::from_bytes(fields.next()?));
    if number == b"0" && controllers.is_empty() {
        return Some((Version::Two, path));
    }
    has(controllers, "memory").then_some((Version::One, path))
}

/// A mounted hierarchy that may have the memory controller.
#[derive(Debug)]
pub struct Hierarchy {
    /// The version of the hierarchy.
    pub version: Version,
    /// The group at the root of the mount.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
}

impl Hierarchy {
    /// Parses a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)); `None` for other mounts.
    pub fn of(line: &[u8]) -> Option<Hierarchy> {
        // 32 24 0:28 ROOT MOUNTPOINT options [tags] - TYPE source OPTIONS
        let mut words = line.split(|byte| *byte == b' ');
        let (root, point) = (words.nth(3)?, words.next()?);
        words.by_ref().find(|word| *word == b"-")?;
        let (kind, options) = (words.next()?, words.nth(1).unwrap_or_default());
        let version = match kind {
            b"cgroup2" => Version::Two,
            b"cgroup" if has(options, "memory") => Version::One,
            _ => return None,
        };
        Some(Hierarchy {
            version,
            root: unescaped(root),
            point: unescaped(point),
        })
    }

    /// The directory of a group of this hierarchy. In a container the mount's root may be the
    /// process's own group, or the group may be outside the mount. The mount point is returned
    /// then.
    pub fn directory(&self, group: &Path) -> PathBuf {
        let below = group.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let leaves = below.components().any(|part| part.as_os_str() == "..");
        self.point.join(if leaves { Path::new("") } else { below })
    }
}

/// Returns true if a comma-separated list contains a word.
fn has(list: &[u8], word: &str) -> bool {
    list.split(|byte| *byte == b',')
        .any(|one| one == word.as_bytes())
}

/// Decodes a path of mountinfo, where blanks, newlines and backslashes are written as a backslash
/// and three octal digits.
pub fn unescaped(escaped: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = match behind {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if byte == b'\\' => [a, b, c],
            _ => {
                bytes.push(byte);
                continue;
            }
        };
        bytes.push(
            digits
                .iter()
                .fold(0, |value, digit| value << 3 | (**digit - b'0')),
        );
        rest = &behind[3..];
    }
    OsString::from_vec(bytes).into()
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
    fn values_are_found_by_whole_words() {
        let text = b"MemFree: 7 kB\nMemAvailable:   12 kB\nName:\tb\xffd\n\nempty\n";
        assert_eq!(number_of(text, "MemAvailable:"), Some(12));
        assert_eq!(number_of(text, "Mem"), None);
        assert_eq!(number_of(text, "Name:"), None);
        assert_eq!(value_of(text, "Name:"), Some(&b"b\xffd"[..]));
        assert_eq!(value_of(text, "empty"), Some(&b""[..]));
        assert_eq!(
            number_of(b"pgscan_direct 18446744073709551616\n", "pgscan_direct"),
            None
        );
    }

    #[test]
    fn cgroup_hierarchies_are_parsed() {
        let v1 = b"37 34 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";
        let v2 = b"30 23 0:26 /a /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let one = Hierarchy::of(v1).unwrap();
        assert_eq!(one.version, Version::One);
        assert_eq!(
            one.directory(Path::new("/b")),
            Path::new("/sys/fs/cgroup/memory/b")
        );
        let two = Hierarchy::of(v2).unwrap();
        assert_eq!(
            (two.version, two.root.as_path()),
            (Version::Two, Path::new("/a"))
        );
        assert_eq!(
            two.directory(Path::new("/a/b")),
            Path::new("/sys/fs/cgroup/b")
        );
        for elsewhere in ["/", "/x", "/a/../.."] {
            let directory = two.directory(Path::new(elsewhere));
            assert_eq!(directory, Path::new("/sys/fs/cgroup/"), "{elsewhere}");
        }
        let cpu = b"33 34 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert!(Hierarchy::of(cpu).is_none() && Hierarchy::of(b"").is_none());
    }

    #[test]
    fn groups_are_found_in_both_versions() {
        for (line, found) in [
            (&b"0::/a:b"[..], Some((Version::Two, "/a:b"))),
            (b"4:cpu,memory:/one/two", Some((Version::One, "/one/two"))),
            (b"2:cpu:/b", None),
            (b"1:name=systemd:/b", None),
            (b"0:", None),
        ] {
            let group = memory_group(line);
            assert_eq!(
                group,
                found.map(|(version, path)| (version, Path::new(path)))
            );
        }
    }

    #[test]
    fn mount_points_may_have_any_bytes() {
        let line = b"30 23 0:26 / /mnt/a\\040-\\040b\\012\\134c\xff rw - cgroup2 none rw";
        let point = Hierarchy::of(line).unwrap().point;
        assert_eq!(point.as_os_str().as_bytes(), b"/mnt/a - b\n\\c\xff");
        assert_eq!(unescaped(b"\\4\\0400\\777\\"), Path::new("\\4 0\\777\\"));
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
