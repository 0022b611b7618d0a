//! The snapshot of a page cache: its shape, how it is written, and how one is read that anybody may
//! have written.
//!
//! It is read line by line and never held as a whole. What is no snapshot, or not all of one, is
//! refused before anything is done; an entry that makes no sense costs only itself.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bring::{Only, Stamp, Wish};
use crate::name::Name;
use crate::problem::Problem;
use crate::tree::Found;

const FORMAT: &str = "nowait cache";
const VERSION: u64 = 1;

/// Ranges on one line; a file with more has several lines.
pub const MOST_RANGES: usize = 65_536;
/// Longer than any line that is written: every range takes at most 42 bytes.
const MOST_BYTES: u64 = 4 << 20;
/// No path that the kernel takes is longer, its NUL left aside.
const PATH_MAX: usize = 4095;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
}

/// One file, as it is written.
#[derive(Serialize)]
struct Noted<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    size: u64,
    mtime: (i64, u32),
    inode: u64,
    ranges: &'a [(u64, u64)],
}

#[derive(Serialize, Deserialize)]
struct End {
    files: u64,
}

/// Any line but the first, as it is read.
#[derive(Deserialize)]
struct Line {
    end: Option<End>,
    path: Option<String>,
    path_hex: Option<String>,
    size: Option<u64>,
    mtime: Option<(i64, u32)>,
    inode: Option<u64>,
    ranges: Option<Vec<(u64, u64)>>,
}

/// Writes a snapshot.
pub struct Writer<W: Write> {
    out: W,
    lines: u64,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, lines: 0 };
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
        };
        writer.line(&header)?;
        Ok(writer)
    }

    /// Notes some ranges of one file, at most [`MOST_RANGES`].
    pub fn note(&mut self, path: &Path, stamp: &Stamp, ranges: &[(u64, u64)]) -> io::Result<()> {
        self.lines += 1;
        self.line(&Noted {
            name: Name::of(path),
            size: stamp.size,
            mtime: stamp.mtime,
            inode: stamp.inode,
            ranges,
        })
    }

    /// Ends it; gives back what it was written to.
    pub fn end(mut self) -> io::Result<W> {
        let files = self.lines;
        self.line(&serde_json::json!({ "end": End { files } }))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }
}

/// A snapshot that was read to its end once, and is whole.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    name: String,
}

impl Snapshot {
    /// Reads all of a snapshot without keeping it.
    pub fn check(file: File, name: String) -> Result<Snapshot, Problem> {
        let mut snapshot = Snapshot { file, name };
        snapshot.each(|_| Ok::<(), std::convert::Infallible>(()))?;
        Ok(snapshot)
    }

    /// Calls `each` with every entry, from the first on: what is wished for, or what is wrong with
    /// that one line. An error from `each` ends it, and is no problem.
    pub fn each<E>(
        &mut self,
        mut each: impl FnMut(Result<Wish, Bad>) -> Result<(), E>,
    ) -> Result<(), Problem> {
        let refuse = |line: u64, why: &dyn fmt::Display| {
            Problem::Failed(format!("{} line {line}: {why}", self.name))
        };
        self.file.rewind().map_err(|e| Problem::of(&self.name, e))?;
        let mut input = BufReader::new(&self.file);
        let mut text = Vec::new();
        read_line(&mut input, &mut text).map_err(|e| refuse(1, &e))?;
        check_header(&text).map_err(|e| refuse(1, &e))?;
        let mut entries = 0;
        loop {
            let number = entries + 2;
            let cut_off = "it is cut off: the line that ends a snapshot is missing; save it again";
            read_line(&mut input, &mut text).map_err(|e| refuse(number, &e))?;
            if text.is_empty() {
                return Err(refuse(number, &cut_off));
            }
            let parsed = serde_json::from_slice::<Line>(&text);
            let entry = match parsed {
                Ok(Line { end: Some(end), .. }) => {
                    if end.files != entries {
                        let why = format!(
                            "it ends after {entries} entries and says that it has {}: some are \
                             missing; save it again",
                            end.files
                        );
                        return Err(refuse(number, &why));
                    }
                    read_line(&mut input, &mut text).map_err(|e| refuse(number + 1, &e))?;
                    if text.is_empty() {
                        return Ok(());
                    }
                    return Err(refuse(number + 1, &"there is something after its end"));
                }
                Ok(line) => line.wish(),
                // Well-formed, and no entry.
                Err(e) if e.is_data() => Err(e.to_string()),
                Err(_) if !text.ends_with(b"\n") => return Err(refuse(number, &cut_off)),
                Err(e) => return Err(refuse(number, &format_args!("this is no snapshot: {e}"))),
            };
            entries += 1;
            let entry = entry.map_err(|why| Bad { line: number, why });
            if each(entry).is_err() {
                return Ok(());
            }
        }
    }
}

/// A line that is no entry that could be restored.
#[derive(Debug)]
pub struct Bad {
    pub line: u64,
    pub why: String,
}

/// Reads one line with its end, up to the longest that there may be; nothing at the end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    input.take(MOST_BYTES).read_until(b'\n', line)?;
    if line.len() as u64 == MOST_BYTES {
        return Err(io::Error::other(
            "this is no snapshot: the line is longer than any that is written",
        ));
    }
    Ok(())
}

fn check_header(line: &[u8]) -> Result<(), String> {
    let header: Header = serde_json::from_slice(line)
        .map_err(|_| "this is no snapshot: its first line does not say so".to_owned())?;
    if header.format != FORMAT {
        return Err("this is no snapshot: its format is another".into());
    }
    if header.version != VERSION {
        return Err(format!(
            "this snapshot has version {}, and this program knows version {VERSION}: save it again, \
             or restore it with the program that wrote it",
            header.version
        ));
    }
    Ok(())
}

impl Line {
    /// What it wishes for, if that makes sense.
    fn wish(self) -> Result<Wish, String> {
        let missing = |what: &str| format!("it has no {what}");
        let path = match (self.path, self.path_hex) {
            (_, Some(hex)) => bytes_of(&hex).ok_or("its path_hex is no hexadecimal number")?,
            (Some(path), None) => path.into_bytes(),
            (None, None) => return Err(missing("path")),
        };
        let path = PathBuf::from(OsString::from_vec(path));
        check_path(&path)?;
        let stamp = Stamp {
            size: self.size.ok_or_else(|| missing("size"))?,
            mtime: self.mtime.ok_or_else(|| missing("mtime"))?,
            inode: self.inode.ok_or_else(|| missing("inode"))?,
        };
        if stamp.size > i64::MAX as u64 {
            return Err("its size is more than a file can have".into());
        }
        let ranges = self.ranges.ok_or_else(|| missing("ranges"))?;
        Ok(Wish {
            only: Some(Only {
                ranges: check_ranges(&ranges, stamp.size)?,
                stamp,
            }),
            found: Found::named(path, stamp.inode),
        })
    }
}

/// An absolute path that says itself where it leads.
fn check_path(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    let dots = |part: &[u8]| part == b"." || part == b"..";
    if !path.is_absolute() {
        Err("its path is not absolute".into())
    } else if bytes.len() > PATH_MAX {
        Err("its path is longer than any".into())
    } else if bytes.contains(&0) {
        Err("there is a NUL byte in its path".into())
    } else if bytes.split(|&b| b == b'/').any(dots) {
        Err("there is `.` or `..` in its path".into())
    } else {
        Ok(())
    }
}

/// Ranges in order, none empty, none over another, all within the file.
fn check_ranges(ranges: &[(u64, u64)], size: u64) -> Result<Vec<Range<u64>>, String> {
    if ranges.len() > MOST_RANGES {
        return Err(format!("it has more than {MOST_RANGES} ranges"));
    }
    let mut before = 0;
    let mut checked = Vec::with_capacity(ranges.len());
    for &(from, to) in ranges {
        let range = format_args!("its range {from} to {to}").to_string();
        if from >= to {
            return Err(format!("{range} is empty"));
        }
        if to > size {
            return Err(format!("{range} is beyond its size {size}"));
        }
        if from < before {
            return Err(format!("{range} is not behind the one before"));
        }
        before = to;
        checked.push(from..to);
    }
    Ok(checked)
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}
