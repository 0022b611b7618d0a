//! A profile: what a program has used in its last runs. The reader does not trust its input.

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nowait_ahead_policy::{Learned, Use};
use nowait_page_cache::Stamp;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::command::Command;
use crate::file_list::{self, Format, Listed, Reader, Uses, Writer, Written};
use crate::name::Name;

/// The description of the format for `--help`.
pub const JSON_FORMAT: &str = r#"A profile is JSON, one value per line:
  {"format": "nowait learn", "version": 2, "path": "/program",
   "digest": HEX, "runs": N, "updated": SECONDS}
  {"path": "/absolute/or/relative", "size": BYTES, "inode": N,
   "mtime": [SECONDS, NANOSECONDS], "ranges": [[FROM, TO], ...],
   "listed": true, "names": true, "unmounted": true, "unused": N}
  {"end": {"lines": LINES}}
"digest" is the SHA-256 of the program and its arguments, each followed by a zero byte. After the first
line, there is one of LINES with "path" for each path that the program has used, in the order of the first use. Paths
below the working directory are relative to it. Only opened files have "size", "inode", "mtime" and
"ranges", which are the bytes that were read or mapped. "listed": the names of the directory were listed.
"names": many names of the directory were looked up. "unmounted": a filesystem was unmounted at this path,
and nothing below it is loaded. "unused": the number of runs since the last use. For
a path that is not UTF-8, "path_hex" has its bytes in hexadecimal."#;

const FORMAT: Format = Format {
    name: "nowait learn",
    version: 2,
    kind: "profile",
    none: "it is no profile",
    count: "lines",
    remedy: "learn it again",
};
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
    pub uses: Uses,
}

/// The used parts of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileUse {
    /// The file that was used.
    pub stamp: Stamp,
    /// In order and apart.
    pub ranges: Vec<Range<u64>>,
}

/// The keys of the first line, as they are written.
#[derive(Serialize)]
struct WrittenHeader<'a> {
    #[serde(flatten)]
    program: Name<'a>,
    digest: &'a str,
    runs: u64,
    updated: u64,
}

/// The keys of the first line, as they are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    path: Option<String>,
    path_hex: Option<String>,
    digest: String,
    runs: u64,
    updated: u64,
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
        let header = WrittenHeader {
            program: Name::of(&self.command.program),
            digest: &self.command.digest,
            runs: self.runs,
            updated: self.updated,
        };
        let mut list = Writer::new(out, &FORMAT, &header)?;
        for entry in &self.entries {
            let pair = |range: &Range<u64>| (range.start, range.end);
            let ranges = |file: &FileUse| file.ranges.iter().map(pair).collect::<Vec<_>>();
            let file = entry.file.as_ref().map(|file| (&file.stamp, ranges(file)));
            let file = file.as_ref().map(|(stamp, ranges)| (*stamp, &ranges[..]));
            list.line(&Written::new(&entry.path, file, entry.uses))?;
        }
        list.end().map(drop)
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn read(input: impl Read) -> Result<Profile, String> {
        let input = BufReader::new(input.take(MAX_SIZE));
        let (header, mut list): (Header, _) =
            Reader::new(input, &FORMAT).map_err(|e| e.to_string())?;
        let program = file_list::path(header.path, header.path_hex)?.unwrap_or_default();
        let mut profile = Profile {
            command: Command {
                program,
                digest: header.digest,
            },
            runs: header.runs,
            updated: header.updated,
            entries: Vec::new(),
        };
        while let Some(listed) = list.next().map_err(|e| e.to_string())? {
            let Listed { path, file, uses } =
                listed.map_err(|why| format!("line {}: {why}", list.line()))?;
            let file = file.map(|(stamp, ranges)| FileUse { stamp, ranges });
            profile.entries.push(Entry { path, file, uses });
        }
        Ok(profile)
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
            used.many_looked_up |= crowded.contains(path.as_path());
            let is_name = !used.is_opened && !used.is_listed && !used.many_looked_up;
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
                Some(entry) => entry.uses.unmounted = true,
                None => self.entries.push(Entry {
                    path: path.to_owned(),
                    uses: Uses {
                        unmounted: true,
                        ..Uses::default()
                    },
                    ..Entry::default()
                }),
            }
        }
        // A run may have ended early, or have needed less.
        let mut rest: Vec<Entry> = old.into_values().collect();
        rest.iter_mut()
            .for_each(|entry| entry.uses.unused = entry.uses.unused.saturating_add(1));
        rest.retain(|entry| entry.uses.unused < FORGOTTEN_AFTER);
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
            uses: Uses {
                listed: used.is_listed,
                many_looked_up: used.many_looked_up,
                ..Uses::default()
            },
            file: None,
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
        self.uses.listed |= before.uses.listed;
        self.uses.many_looked_up |= before.uses.many_looked_up;
        self.uses.unmounted |= before.uses.unmounted;
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

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
                    uses: Uses {
                        unused: 2,
                        ..Uses::default()
                    },
                    ..entry(b"/a")
                },
                Entry {
                    uses: Uses {
                        listed: true,
                        many_looked_up: true,
                        ..Uses::default()
                    },
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
            uses: Uses {
                unused: u32::MAX,
                ..Uses::default()
            },
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
            uses: Uses {
                many_looked_up: true,
                ..Uses::default()
            },
            ..Entry::default()
        };
        assert_eq!(profile.entries, [expected]);
    }
}
