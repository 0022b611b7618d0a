//! What /proc says, line by line. All of it is bytes: names of processes, mounts and files may be any.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The bytes of a file of /proc; none if it can't be read.
pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// Lines without their ends.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_suffix(b"\n")
        .unwrap_or(text)
        .split(|byte| *byte == b'\n')
}

/// What follows a word at the beginning of a line, without the blanks around it: of /proc/meminfo,
/// /proc/vmstat, /proc/PID/status, and memory.stat of a cgroup.
pub fn value_of<'a>(text: &'a [u8], word: &str) -> Option<&'a [u8]> {
    lines(text).find_map(|line| {
        let rest = line.strip_prefix(word.as_bytes())?;
        let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
        ends.then(|| rest.trim_ascii())
    })
}

/// The number that follows a word at the beginning of a line, its unit left aside.
pub fn number_of(text: &[u8], word: &str) -> Option<u64> {
    number(
        value_of(text, word)?
            .split(u8::is_ascii_whitespace)
            .next()?,
    )
}

/// Bytes that the kernel thinks it could give without swapping (/proc/meminfo).
pub fn available_memory() -> Option<u64> {
    let kib = number_of(&read("/proc/meminfo"), "MemAvailable:")?;
    kib.checked_mul(1 << 10)
}

/// Decimal digits alone.
pub fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    // Rust would take a sign.
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

/// Which cgroups (cgroups(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// The hierarchy with the memory controller that a line of /proc/PID/cgroup is about, and the group in
/// it; `None` for other lines.
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
    pub version: Version,
    /// The group that the mount shows as its top.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
}

impl Hierarchy {
    /// Of a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)); `None` for other mounts.
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

    /// A group of this hierarchy as a directory. In a container the mount may begin at our own group,
    /// or show nothing of it: then it is the mount's top.
    pub fn directory(&self, group: &Path) -> PathBuf {
        let below = group.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let leaves = below.components().any(|part| part.as_os_str() == "..");
        self.point.join(if leaves { Path::new("") } else { below })
    }
}

/// Whether a list with commas has a word.
fn has(list: &[u8], word: &str) -> bool {
    list.split(|byte| *byte == b',')
        .any(|one| one == word.as_bytes())
}

/// A path of mountinfo: blanks, newlines and backslashes are written as three octal digits.
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

/// A mapping of a file, of a line of /proc/PID/maps or smaps (proc_pid_maps(5)).
#[derive(Debug, PartialEq, Eq)]
pub struct Mapping {
    pub inode: u64,
    /// Major and minor number.
    pub device: (u32, u32),
    /// As it is written there: see [`in_maps`].
    pub path: Vec<u8>,
}

impl Mapping {
    /// `None` for memory without a file, and for what smaps says between.
    pub fn of(line: &[u8]) -> Option<Mapping> {
        // 7f00-7f01 r--p 00000000 fd:1a 2097164      /a dir/it's.so
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
        Some(Mapping {
            inode,
            device,
            path,
        })
    }
}

/// A path as maps has it: of all bytes only newlines are written as octal digits.
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

/// Whether a line of smaps begins a mapping: the others begin with a word and a colon.
pub fn begins_mapping(line: &[u8]) -> bool {
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    first.last() != Some(&b':')
}

/// Whether a line of smaps says that its mapping is locked.
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
    fn hierarchies_are_told_apart() {
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
    fn mount_points_are_any_bytes() {
        let line = b"30 23 0:26 / /mnt/a\\040-\\040b\\012\\134c\xff rw - cgroup2 none rw";
        let point = Hierarchy::of(line).unwrap().point;
        assert_eq!(point.as_os_str().as_bytes(), b"/mnt/a - b\n\\c\xff");
        assert_eq!(unescaped(b"\\4\\0400\\777\\"), Path::new("\\4 0\\777\\"));
    }

    #[test]
    fn lines_of_maps_are_told_from_what_smaps_puts_between() {
        let line = b"7f00-7f01 r--p 00000000 fd:1a 2097164      /a dir/it's.so";
        let mapping = Mapping::of(line).unwrap();
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
