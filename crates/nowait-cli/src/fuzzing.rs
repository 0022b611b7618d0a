//! The checks that the fuzz targets in `fuzz/` call: they compare the parsers with simple models.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};

use nowait_ahead_policy::Learned;
use nowait_page_cache::Stamp;
use nowait_residency::cgroup::{Controller, Hierarchy, Version, group_of};

use crate::cache::snapshot::{FORMAT, Snapshot};
use crate::file_list::{MAX_RANGES, Uses, Writer, Written};
use crate::learn::command::Command;
use crate::learn::profile::{self, FileUse, Profile};
use crate::proc::{self, Mapping};

/// One file of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The path. It may be any bytes.
    pub path: Vec<u8>,
    /// The size in bytes.
    pub size: u64,
    /// The modification time: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// The inode number.
    pub inode: u64,
    /// The byte ranges.
    pub ranges: Vec<Range<u64>>,
}

/// All entries of a snapshot, and the number of skipped lines; `None` if the snapshot is refused.
fn parse(text: &[u8]) -> Option<(Vec<Entry>, u64)> {
    let name = "snapshot";
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file: File = rustix::fs::memfd_create(name, flags).unwrap().into();
    file.write_all(text).unwrap();
    file.rewind().unwrap();
    let mut snapshot = Snapshot::check(file, name.into()).ok()?;
    let (mut entries, mut bad) = (Vec::new(), 0);
    let read = snapshot.each(|entry| {
        match entry {
            Ok(request) => {
                let selection = request.selection.expect("ranges");
                entries.push(Entry {
                    path: request.file.path().as_os_str().as_bytes().to_vec(),
                    size: selection.stamp.size,
                    mtime: selection.stamp.mtime,
                    inode: selection.stamp.inode,
                    ranges: selection.ranges,
                });
            }
            Err(_) => bad += 1,
        }
        Ok::<(), std::convert::Infallible>(())
    });
    assert!(read.is_ok(), "what was whole once is whole");
    Some((entries, bad))
}

fn write(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &FORMAT, &serde_json::json!({})).unwrap();
    for entry in entries {
        let stamp = Stamp {
            size: entry.size,
            mtime: entry.mtime,
            inode: entry.inode,
        };
        let ranges: Vec<_> = entry.ranges.iter().map(|r| (r.start, r.end)).collect();
        let path = Path::new(OsStr::from_bytes(&entry.path));
        let file = Some((&stamp, &ranges[..]));
        writer
            .line(&Written::new(path, file, Uses::default()))
            .unwrap();
    }
    writer.end().unwrap()
}

/// Returns true if a snapshot may have this entry. This is a simple model of the parser's checks.
fn makes_sense(entry: &Entry) -> bool {
    let path = Path::new(OsStr::from_bytes(&entry.path));
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    let bounds: Vec<u64> = entry.ranges.iter().flat_map(|r| [r.start, r.end]).collect();
    let in_order = bounds.windows(2).enumerate().all(|(at, two)| match at % 2 {
        0 => two[0] < two[1],
        _ => two[0] <= two[1],
    });
    path.is_absolute()
        && path.components().all(plain)
        && !entry.path.split(|b| *b == b'/').any(|part| part == b".")
        && !entry.path.contains(&0)
        && entry.path.len() <= 4095
        && entry.ranges.len() <= MAX_RANGES
        && in_order
        && bounds.last().is_none_or(|end| *end <= entry.size)
        && i64::try_from(entry.size).is_ok()
}

/// Checks any bytes: all entries read from them are valid, and are equal after they are written and
/// read again.
pub fn snapshot_of_bytes(text: &[u8]) {
    let Some((entries, _)) = parse(text) else {
        return;
    };
    for entry in &entries {
        assert!(makes_sense(entry), "{entry:?}");
    }
    assert_eq!(parse(&write(&entries)), Some((entries, 0)));
}

/// Checks any entries: valid entries are read as they were written, and the others are skipped.
pub fn snapshot_of_entries(entries: Vec<Entry>) {
    let text = write(&entries);
    let total = entries.len() as u64;
    let good: Vec<Entry> = entries.into_iter().filter(makes_sense).collect();
    let bad = total - good.len() as u64;
    assert_eq!(parse(&text), Some((good, bad)));
    // A truncated snapshot is refused, but the last newline may be missing.
    for len in [text.len() / 3, text.len() / 2, text.len() - 2] {
        assert_eq!(parse(&text[..len]), None);
    }
}

fn write_profile(profile: &Profile) -> Vec<u8> {
    let mut text = Vec::new();
    profile.write(&mut text).unwrap();
    text
}

/// Checks any bytes: a profile that is read from them is valid, is equal after it is written and read again, and can learn.
pub fn profile_of_bytes(text: &[u8]) {
    let Ok(mut profile) = Profile::read(text) else {
        return;
    };
    assert!(profile.entries.iter().all(may_be_used), "{profile:?}");
    assert_eq!(
        Profile::read(&*write_profile(&profile)),
        Ok(profile.clone())
    );
    let (runs, files) = (profile.runs, profile.files());
    assert!(files <= profile.entries.len() as u64);
    profile.learn(&Learned::default(), Path::new("/"));
    assert_eq!(profile.runs, runs.saturating_add(1));
    assert!(profile.files() <= files);
}

/// Returns true if a profile may have this entry. This is a simple model of the reader's checks.
fn may_be_used(entry: &profile::Entry) -> bool {
    let is_file = |file: &FileUse| {
        let mut before = 0;
        file.ranges.len() <= MAX_RANGES
            && file.ranges.iter().all(|range| {
                let is_after = before <= range.start && range.start < range.end;
                before = range.end;
                is_after && range.end <= file.stamp.size
            })
    };
    let is_path = is_path(&entry.path) && !entry.path.as_os_str().is_empty();
    is_path && entry.file.as_ref().is_none_or(is_file)
}

/// Returns true if the kernel may accept this path.
fn is_path(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    !path.contains(&0) && path.len() < libc::PATH_MAX as usize
}

/// Checks a command and entries: a profile of valid ones is read as it was written, one with others is refused.
pub fn profile_of_entries(command: Vec<Vec<u8>>, entries: Vec<(Entry, u8, u32)>) {
    let entry = |(entry, flags, unused): (Entry, u8, u32)| {
        let stamp = Stamp {
            size: entry.size,
            mtime: entry.mtime,
            inode: entry.inode,
        };
        let file = FileUse {
            stamp,
            ranges: entry.ranges,
        };
        profile::Entry {
            path: OsStr::from_bytes(&entry.path).into(),
            file: (flags & 1 == 1).then_some(file),
            uses: Uses {
                listed: flags & 2 == 2,
                many_looked_up: flags & 4 == 4,
                unmounted: flags & 8 == 8,
                unused,
            },
        }
    };
    let words: Vec<_> = command.into_iter().map(OsString::from_vec).collect();
    let profile = Profile {
        command: Command::of(&words, None),
        entries: entries.into_iter().map(entry).collect(),
        ..Profile::default()
    };
    let text = write_profile(&profile);
    let read = Profile::read(&*text);
    let is_valid = is_path(&profile.command.program) && profile.entries.iter().all(may_be_used);
    match is_valid {
        true => assert_eq!(read, Ok(profile)),
        false => assert!(read.is_err(), "{profile:?}"),
    }
    // A truncated profile is refused, but the last newline may be missing.
    for len in [text.len() / 3, text.len() / 2, text.len() - 2] {
        assert!(Profile::read(&text[..len]).is_err());
    }
}

/// Checks any bytes as a file of /proc: compares words and numbers with a parser that does not
/// split lines.
pub fn values(text: &[u8], word: &str) {
    if word.is_empty() || word.contains(|c: char| c.is_ascii_whitespace()) {
        return;
    }
    let mut found = None;
    for line in text.split(|b| *b == b'\n') {
        let end = line.iter().position(u8::is_ascii_whitespace);
        let (first, rest) = line.split_at(end.unwrap_or(line.len()));
        if first == word.as_bytes() && found.is_none() {
            found = Some(rest.trim_ascii());
        }
    }
    assert_eq!(proc::value_of(text, word), found);
    let digits = found.map(|rest| rest.split(u8::is_ascii_whitespace).next().unwrap());
    let number = digits.filter(|d| !d.is_empty()).and_then(|digits| {
        digits.iter().try_fold(0u64, |sum, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            sum.checked_mul(10)?.checked_add(u64::from(digit))
        })
    });
    assert_eq!(proc::number_of(text, word), number);
    for line in proc::lines(text) {
        let _ = (group_of(line, Controller::Memory), Mapping::of(line));
        let _ = (proc::begins_mapping(line), proc::says_locked(line));
        assert!(proc::unescaped(line).as_os_str().len() <= line.len());
        if let Some(hierarchy) = Hierarchy::of(line, Controller::Memory) {
            let directory = hierarchy.directory(Path::new("/a"));
            assert!(directory.is_none_or(|it| it.starts_with(&hierarchy.point)));
        }
    }
}

/// A path as the kernel's `mangle_path` writes it.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => write!(text, "\\{byte:03o}").unwrap(),
            byte => text.push(*byte),
        }
    }
    text
}

/// The path of a possible mount.
fn path_of(bytes: &[u8]) -> Vec<u8> {
    let mut path = b"/".to_vec();
    path.extend(bytes.iter().filter(|b| **b != 0));
    path
}

/// Checks that a line of mountinfo and a line of cgroup made of these parts are parsed to the same
/// parts.
pub fn mounts(two: bool, root: &[u8], point: &[u8], group: &[u8], tags: u8, number: u32) {
    let (root, point) = (path_of(root), path_of(point));
    let mut line = format!("30 23 0:{number} ").into_bytes();
    line.extend(escaped(&root));
    line.push(b' ');
    line.extend(escaped(&point));
    line.extend(b" rw");
    for tag in 0..tags % 4 {
        line.extend(format!(" shared:{tag}").as_bytes());
    }
    line.extend(match two {
        true => &b" - cgroup2 /dev/x rw,nsdelegate"[..],
        false => b" - cgroup /dev/x rw,memory",
    });
    let hierarchy = Hierarchy::of(&line, Controller::Memory).expect("a hierarchy");
    let version = if two { Version::Two } else { Version::One };
    assert_eq!(hierarchy.version, version);
    assert_eq!(hierarchy.root.as_os_str().as_bytes(), root);
    assert_eq!(hierarchy.point.as_os_str().as_bytes(), point);
    let source = nowait::internals::source_of(&line, &format!("0:{number}"));
    assert_eq!(source, Some(&b"/dev/x"[..]));

    // The kernel does not allow a newline in the name of a cgroup.
    let group: Vec<u8> = path_of(group).into_iter().filter(|b| *b != b'\n').collect();
    let mut line = if two {
        b"0::".to_vec()
    } else {
        b"4:cpu,memory:".to_vec()
    };
    line.extend(&group);
    let group = Path::new(OsStr::from_bytes(&group));
    assert_eq!(group_of(&line, Controller::Memory), Some((version, group)));
    let directory = hierarchy.directory(group);
    let below = directory.as_ref().map(|it| {
        let below = it.strip_prefix(&hierarchy.point);
        below.expect("below the mount")
    });
    let rest = group.strip_prefix(&hierarchy.root).ok();
    let leaves = |rest: &Path| rest.components().any(|part| part == Component::ParentDir);
    assert_eq!(below, rest.filter(|rest| !leaves(rest)));
}

/// Checks that a line of maps made of these parts is parsed to the same parts.
pub fn mapping(range: (u64, u64), device: (u32, u32), inode: u64, path: &[u8], locked: bool) {
    let path = path_of(path);
    let path = Path::new(OsStr::from_bytes(&path));
    let (from, to) = range;
    let (major, minor) = device;
    let head = format!("{from:08x}-{to:08x} r--p {from:08x} {major:02x}:{minor:02x} {inode} ");
    let mut line = format!("{head:<73}").into_bytes();
    line.extend(proc::in_maps(path));
    let expected = (inode != 0).then(|| Mapping {
        addresses: from..to,
        offset: from,
        inode,
        device,
        path: proc::in_maps(path),
    });
    assert_eq!(Mapping::of(&line), expected);
    assert!(proc::begins_mapping(&line) && !proc::says_locked(&line));
    assert!(!line.contains(&b'\n'));
    let flags = if locked {
        "VmFlags: rd lo sd"
    } else {
        "VmFlags: rd sd"
    };
    assert_eq!(proc::says_locked(flags.as_bytes()), locked);
    assert!(!proc::begins_mapping(flags.as_bytes()));
}
