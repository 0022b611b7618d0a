//! A profile: what a program has used in its last runs. The reader does not trust its input.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nowait_ahead_policy::{Learned, Use};
use nowait_page_cache::Stamp;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::command::Command;
use crate::cache::snapshot::check_ranges;
use crate::name::{Name, bytes_of};

/// The description of the format for `--help`.
pub const JSON_FORMAT: &str = r#"A profile is JSON, one value per line:
  {"format": "nowait learn", "version": 2, "path": "/program",
   "digest": HEX, "runs": N, "updated": SECONDS}
  {"path": "/absolute/or/relative", "size": BYTES, "inode": N,
   "mtime": [SECONDS, NANOSECONDS], "ranges": [[FROM, TO], ...],
   "listed": true, "names": true, "unmounted": true, "unused": N}
  {"end": {"lines": N}}
"digest" is the SHA-256 of the program and its arguments, each followed by a zero byte. After the first
line, there is one with "path" for each path that the program has used, in the order of the first use. Paths
below the working directory are relative to it. Only opened files have "size", "inode", "mtime" and
"ranges", which are the bytes that were read or mapped. "listed": the names of the directory were listed.
"names": many names of the directory were looked up. "unmounted": a filesystem was unmounted at this path,
and nothing below it is loaded. "unused": the number of runs since the last use. For
a path that is not UTF-8, "path_hex" has its bytes in hexadecimal."#;

const FORMAT: &str = "nowait learn";
const VERSION: u64 = 2;
/// The maximum size of a profile in bytes.
pub const MAX_SIZE: u64 = 64 << 20;
/// A path that was not used in so many runs is forgotten.
const FORGOTTEN_AFTER: u32 = 3;
/// A file that is not larger is loaded completely if any part was used. Also the bytes between two
/// parts that are loaded with them: one request takes as long as two of such parts.
const SMALL: u64 = 16 << 10;
/// If so many names of a directory were looked up, all of its inodes are loaded. They are few in a
/// small directory, and several of them are in one block of the disk.
const SOME_NAMES: usize = 8;
const MANY_NAMES: usize = 64;
/// The size of a small directory.
const SMALL_DIRECTORY: i64 = 64 << 10;

/// The profile of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The program, and a checksum of its arguments.
    pub command: Command,
    /// The number of runs that were learnt.
    pub runs: u64,
    /// The time of the last one, in seconds since 1970.
    pub updated: u64,
    /// The paths in the order of the first use.
    pub entries: Vec<Entry>,
}

/// A path that the program has used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// It is absolute, or relative to the working directory of the program.
    pub path: PathBuf,
    /// Of a file that was opened.
    pub file: Option<FileUse>,
    /// The names of the directory were listed.
    pub listed: bool,
    /// Many names of the directory were looked up.
    pub names: bool,
    /// A filesystem was unmounted here. A file that is open there would make umount(2) fail.
    pub unmounted: bool,
    /// The number of runs since the last use.
    pub unused: u32,
}

/// The used parts of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileUse {
    /// The file that was used.
    pub stamp: Stamp,
    /// In order and apart.
    pub ranges: Vec<Range<u64>>,
}

/// The first line as it is written.
#[derive(Serialize)]
struct WrittenHeader<'a> {
    format: &'a str,
    version: u64,
    #[serde(flatten)]
    program: Name<'a>,
    digest: &'a str,
    runs: u64,
    updated: u64,
}

/// The first line as it is read.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u64,
    path: Option<String>,
    path_hex: Option<String>,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    runs: u64,
    #[serde(default)]
    updated: u64,
}

/// An entry as it is written.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<(i64, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<(u64, u64)>>,
    #[serde(skip_serializing_if = "is_false")]
    listed: bool,
    #[serde(skip_serializing_if = "is_false")]
    names: bool,
    #[serde(skip_serializing_if = "is_false")]
    unmounted: bool,
    #[serde(skip_serializing_if = "is_zero")]
    unused: u32,
}

#[derive(Serialize, Deserialize)]
struct End {
    lines: usize,
}

/// Any line but the first, as it is read.
#[derive(Deserialize)]
struct Line {
    end: Option<End>,
    path: Option<String>,
    path_hex: Option<String>,
    size: Option<u64>,
    inode: Option<u64>,
    mtime: Option<(i64, u32)>,
    ranges: Option<Vec<(u64, u64)>>,
    #[serde(default)]
    listed: bool,
    #[serde(default)]
    names: bool,
    #[serde(default)]
    unmounted: bool,
    #[serde(default)]
    unused: u32,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Profile {
    /// The bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        let files = self.entries.iter().filter_map(|entry| entry.file.as_ref());
        files.map(FileUse::bytes).fold(0, u64::saturating_add)
    }

    /// The number of files that are opened.
    pub fn files(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| entry.file.is_some())
            .count() as u64
    }

    /// Writes the profile.
    ///
    /// # Errors
    /// Of the writer.
    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        write_line(
            out,
            &WrittenHeader {
                format: FORMAT,
                version: VERSION,
                program: Name::of(&self.command.program),
                digest: &self.command.digest,
                runs: self.runs,
                updated: self.updated,
            },
        )?;
        for entry in &self.entries {
            let file = entry.file.as_ref();
            let pair = |range: &Range<u64>| (range.start, range.end);
            write_line(
                out,
                &Written {
                    name: Name::of(&entry.path),
                    size: file.map(|file| file.stamp.size),
                    inode: file.map(|file| file.stamp.inode),
                    mtime: file.map(|file| file.stamp.mtime),
                    ranges: file.map(|file| file.ranges.iter().map(pair).collect()),
                    listed: entry.listed,
                    names: entry.names,
                    unmounted: entry.unmounted,
                    unused: entry.unused,
                },
            )?;
        }
        let lines = self.entries.len();
        write_line(out, &serde_json::json!({ "end": End { lines } }))
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn read(input: impl Read) -> Result<Profile, String> {
        let mut lines = BufReader::new(input.take(MAX_SIZE)).split(b'\n');
        let mut next = || match lines.next() {
            Some(Ok(line)) => Ok(line),
            Some(Err(e)) => Err(e.to_string()),
            None => Err(cut_off()),
        };
        let header: Header =
            serde_json::from_slice(&next()?).map_err(|e| format!("it is no profile: {e}"))?;
        if header.format != FORMAT {
            return Err("it is no profile".to_owned());
        }
        if header.version != VERSION {
            let version = header.version;
            return Err(format!(
                "it has version {version}, and this program supports {VERSION}"
            ));
        }
        let program = read_path(header.path, header.path_hex)?.unwrap_or_default();
        let mut profile = Profile {
            command: Command {
                program: OsString::from_vec(program).into(),
                digest: header.digest,
            },
            runs: header.runs,
            updated: header.updated,
            entries: Vec::new(),
        };
        loop {
            let number = profile.entries.len() + 2;
            let wrong = |why: &dyn std::fmt::Display| format!("line {number}: {why}");
            let line: Line = serde_json::from_slice(&next()?).map_err(|e| match e.is_eof() {
                true => cut_off(),
                false => wrong(&e),
            })?;
            if let Some(end) = line.end {
                return match end.lines == profile.entries.len() {
                    true => Ok(profile),
                    false => Err(wrong(&"lines are missing")),
                };
            }
            profile.entries.push(line.entry().map_err(|e| wrong(&e))?);
        }
    }

    /// Adds a run. `directory` was the working directory of the program.
    pub fn learn(&mut self, learned: &Learned, directory: &Path) {
        self.runs = self.runs.saturating_add(1);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.updated = now.unwrap_or_default().as_secs();
        let mut old: HashMap<PathBuf, Entry> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| (entry.path.clone(), entry))
            .collect();
        let crowded = crowded(learned);
        for (path, used) in &learned.paths {
            // Names in such a directory are loaded with it.
            let is_crowded = path.parent().is_some_and(|parent| crowded.contains(parent));
            let mut used = used.clone();
            used.is_looked_into |= crowded.contains(path.as_path());
            let is_name = !used.is_opened && !used.is_listed && !used.is_looked_into;
            if is_name && is_crowded {
                continue;
            }
            let short = short(path, directory);
            let mut entry = Entry::of(short.to_owned(), path, &used);
            if let Some(before) = old.remove(short) {
                entry.add(before);
            }
            self.entries.push(entry);
        }
        for path in &learned.unmounted {
            let path = short(path, directory);
            old.remove(path);
            match self.entries.iter_mut().find(|entry| entry.path == path) {
                Some(entry) => entry.unmounted = true,
                None => self.entries.push(Entry {
                    path: path.to_owned(),
                    unmounted: true,
                    ..Entry::default()
                }),
            }
        }
        // A run may have ended early, or have needed less.
        let mut rest: Vec<Entry> = old.into_values().collect();
        rest.iter_mut()
            .for_each(|entry| entry.unused = entry.unused.saturating_add(1));
        rest.retain(|entry| entry.unused < FORGOTTEN_AFTER);
        rest.sort_by(|a, b| a.path.cmp(&b.path));
        self.entries.extend(rest);
    }
}

/// A path relative to the working directory, if it is below it.
fn short<'a>(path: &'a Path, directory: &Path) -> &'a Path {
    let below = path.strip_prefix(directory).ok();
    let below = below.filter(|it| !it.as_os_str().is_empty() && directory != Path::new("/"));
    below.unwrap_or(path)
}

/// The directories of which many names were looked up.
fn crowded(learned: &Learned) -> HashSet<&Path> {
    let mut names: HashMap<&Path, usize> = HashMap::new();
    for (path, used) in &learned.paths {
        if let Some(parent) = path.parent().filter(|_| !used.is_opened) {
            *names.entry(parent).or_default() += 1;
        }
    }
    let is_small = |path: &Path| {
        let stat = rustix::fs::stat(path);
        stat.is_ok_and(|stat| stat.st_size <= SMALL_DIRECTORY)
    };
    let is_crowded = |(path, count): &(&Path, usize)| {
        *count >= MANY_NAMES || *count >= SOME_NAMES && is_small(path)
    };
    let crowded = names.into_iter().filter(is_crowded);
    crowded.map(|(path, _)| path).collect()
}

impl FileUse {
    /// The bytes of the ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }
}

impl Entry {
    /// The entry of a path that was used now.
    fn of(short: PathBuf, path: &Path, used: &Use) -> Entry {
        let mut entry = Entry {
            path: short,
            listed: used.is_listed,
            names: used.is_looked_into,
            ..Entry::default()
        };
        if !used.is_opened {
            return entry;
        }
        let Ok(stat) = rustix::fs::stat(path) else {
            return entry;
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let stamp = Stamp::of(&stat);
            let ranges = rounded(&used.parts, stamp.size);
            entry.file = Some(FileUse { stamp, ranges });
        }
        entry
    }

    /// Adds what earlier runs have used of the same path.
    fn add(&mut self, before: Entry) {
        self.listed |= before.listed;
        self.names |= before.names;
        self.unmounted |= before.unmounted;
        let (Some(now), Some(old)) = (&mut self.file, before.file) else {
            return;
        };
        if now.stamp != old.stamp {
            return;
        }
        let mut all = Use::default();
        for range in now.ranges.iter().chain(&old.ranges) {
            all.add_part(range.clone());
        }
        let ranges = rounded(&all.parts, now.stamp.size);
        // Otherwise the parts of a file that is used at random would become ever more.
        let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|it| it.end - it.start).sum::<u64>();
        if bytes(&ranges) <= 2 * bytes(&now.ranges) {
            now.ranges = ranges;
        }
    }
}

/// The ranges that are loaded for these parts.
fn rounded(parts: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    if size <= SMALL {
        return Vec::from_iter(Some(0..size).filter(|whole| !whole.is_empty()));
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for part in parts {
        let part = part.start.min(size)..part.end.min(size);
        match ranges.last_mut() {
            _ if part.is_empty() => {}
            Some(last) if part.start <= last.end.saturating_add(SMALL) => last.end = part.end,
            _ => ranges.push(part),
        }
    }
    ranges
}

/// The bytes of a path. `None` if it is missing.
fn read_path(text: Option<String>, hexadecimal: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match hexadecimal {
        Some(hex) => Ok(Some(bytes_of(&hex).ok_or("path_hex is not hexadecimal")?)),
        None => Ok(text.map(String::into_bytes)),
    }
}

impl Line {
    fn entry(self) -> Result<Entry, String> {
        let path = read_path(self.path, self.path_hex)?.ok_or("there is no path")?;
        if path.is_empty() || path.contains(&0) || path.len() >= libc::PATH_MAX as usize {
            return Err("the path is none".to_owned());
        }
        let file = match (self.size, self.inode, self.mtime, self.ranges) {
            (Some(size), Some(inode), Some(mtime), Some(ranges)) => Some(FileUse {
                stamp: Stamp { size, mtime, inode },
                ranges: check_ranges(&ranges, size)?,
            }),
            _ => None,
        };
        Ok(Entry {
            path: OsStr::from_bytes(&path).into(),
            file,
            listed: self.listed,
            names: self.names,
            unmounted: self.unmounted,
            unused: self.unused,
        })
    }
}

fn cut_off() -> String {
    "it is cut off".to_owned()
}

fn write_line(out: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(profile: &Profile) -> Vec<u8> {
        let mut text = Vec::new();
        profile.write(&mut text).unwrap();
        text
    }

    fn profile() -> Profile {
        let stamp = Stamp {
            size: 100_000,
            mtime: (-3, 7),
            inode: 5,
        };
        let ranges = vec![0..4096, 40_960..100_000];
        let entry = |path: &[u8]| Entry {
            path: OsStr::from_bytes(path).into(),
            ..Entry::default()
        };
        Profile {
            command: Command::of(&[OsStr::from_bytes(b"/bin/\xff").to_owned()], None),
            runs: 3,
            updated: 7,
            entries: vec![
                Entry {
                    file: Some(FileUse { stamp, ranges }),
                    unused: 2,
                    ..entry(b"/a")
                },
                Entry {
                    listed: true,
                    names: true,
                    ..entry(b"b/\xff")
                },
                entry(b"/no\nfile"),
            ],
        }
    }

    /// A profile may have been written by anything.
    #[test]
    fn large_numbers_do_no_harm() {
        let whole = FileUse {
            stamp: Stamp {
                size: u64::MAX,
                mtime: (i64::MIN, u32::MAX),
                inode: 0,
            },
            ranges: vec![0..1, 2..u64::MAX],
        };
        let entry = |path: &str| Entry {
            path: path.into(),
            file: Some(whole.clone()),
            unused: u32::MAX,
            ..Entry::default()
        };
        let profile = Profile {
            runs: u64::MAX,
            updated: u64::MAX,
            entries: vec![entry("/missing/a"), entry("/missing/b")],
            ..Profile::default()
        };
        let mut read = Profile::read(written(&profile).as_slice()).unwrap();
        assert_eq!(read, profile);
        assert_eq!(read.bytes(), u64::MAX);
        read.learn(&Learned::default(), Path::new("/"));
        assert_eq!((read.runs, read.entries.len()), (u64::MAX, 0));
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        assert_eq!(Profile::read(&*written(&profile())).unwrap(), profile());
        assert_eq!(profile().bytes(), 4096 + 59_040);
        assert_eq!(profile().files(), 1);
    }

    #[test]
    fn a_profile_that_is_cut_off_or_changed_is_refused() {
        let whole = written(&profile());
        for len in 0..whole.len() - 1 {
            assert!(Profile::read(&whole[..len]).is_err(), "{len}");
        }
        let text = String::from_utf8(whole).unwrap();
        for (from, to) in [
            ("nowait learn", "nowait cache"),
            ("\"version\":2", "\"version\":1"),
            ("4096", "400000"),
            ("[0,4096]", "[4096,0]"),
            ("\"/a\"", "\"\\u0000\""),
            ("\"lines\":3", "\"lines\":4"),
            ("path_hex\":\"", "path_hex\":\"x"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            assert!(Profile::read(changed.as_bytes()).is_err(), "{from}");
        }
    }

    #[test]
    fn close_parts_and_small_files_are_loaded_as_a_whole() {
        assert_eq!(rounded(&[], 0), []);
        assert_eq!(rounded(&[], 9).first(), Some(&(0..9)));
        assert_eq!(rounded(&[], SMALL + 1), []);
        let parts = [0..10, SMALL..2 * SMALL, 5 * SMALL..9 * SMALL];
        let ranges = [0..2 * SMALL, 5 * SMALL..6 * SMALL];
        assert_eq!(rounded(&parts, 6 * SMALL), ranges);
    }

    fn learned(paths: &[(&Path, Use)]) -> Learned {
        let mut learned = Learned::default();
        learned.paths = paths
            .iter()
            .map(|(path, used)| (path.to_path_buf(), used.clone()))
            .collect();
        learned
    }

    fn opened(part: Range<u64>) -> Use {
        let mut used = Use::default();
        used.add_part(part);
        used
    }

    #[test]
    fn paths_are_forgotten_after_runs_without_a_use() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let (a, b) = (at.join("a"), at.join("b"));
        std::fs::write(&a, vec![1; 200_000]).unwrap();
        std::fs::write(&b, "b").unwrap();
        let both = learned(&[
            (&a, opened(0..4096)),
            (&b, opened(0..1)),
            (Path::new("/no"), Use::default()),
        ]);
        let one = learned(&[(&a, opened(100_000..104_096))]);
        let mut profile = Profile::default();
        profile.learn(&both, at);
        let paths = |profile: &Profile| -> Vec<PathBuf> {
            profile
                .entries
                .iter()
                .map(|entry| entry.path.clone())
                .collect()
        };
        assert_eq!(
            paths(&profile),
            [Path::new("a"), "b".as_ref(), "/no".as_ref()]
        );
        profile.learn(&one, at);
        assert_eq!(
            paths(&profile),
            [Path::new("a"), "/no".as_ref(), "b".as_ref()]
        );
        let ranges = &profile.entries[0].file.as_ref().unwrap().ranges;
        assert_eq!(*ranges, [0..4096, 100_000..104_096]);
        profile.learn(&both, at);
        profile.learn(&one, at);
        profile.learn(&one, at);
        assert_eq!(paths(&profile).len(), 3);
        profile.learn(&one, at);
        assert_eq!(paths(&profile), [Path::new("a")]);
        assert_eq!(profile.runs, 6);
        // A replaced file.
        std::fs::write(&a, vec![1; 300_000]).unwrap();
        profile.learn(&one, at);
        let ranges = &profile.entries[0].file.as_ref().unwrap().ranges;
        assert_eq!(ranges.first(), Some(&(100_000..104_096)));
        assert_eq!(ranges.len(), 1);
    }

    #[test]
    fn many_names_of_a_directory_are_one_entry() {
        let names: Vec<PathBuf> = (0..100).map(|n| format!("/d/{n}").into()).collect();
        let mut paths: Vec<(&Path, Use)> = vec![(Path::new("/d"), Use::default())];
        paths.extend(names.iter().map(|name| (name.as_path(), Use::default())));
        let mut profile = Profile::default();
        profile.learn(&learned(&paths), Path::new("/"));
        let expected = Entry {
            path: "/d".into(),
            names: true,
            ..Entry::default()
        };
        assert_eq!(profile.entries, [expected]);
    }
}
