//! The snapshot format, its writer, and its reader. The reader does not trust its input.
//!
//! A snapshot is read line by line and is never held in memory as a whole. A file that is not a
//! complete snapshot is refused before any entry is used. An invalid entry is skipped.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nowait_page_cache::{FileRef, Request, Selection, Stamp};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::name::{Name, bytes_of};
use crate::problem::Problem;

/// The description of a snapshot's format for `--help`.
pub const JSON_FORMAT: &str = r#"A snapshot is JSON, one value per line:
  {"format": "nowait cache", "version": 1}
  {"path": "/absolute", "size": BYTES, "mtime": [SECONDS, NANOSECONDS],
   "inode": N, "ranges": [[FROM, TO], ...]}
  {"end": {"files": LINES}}
There is a line with "path" for each file. Sizes and ranges are in bytes. Ranges are in order, and TO is
exclusive. A line has at most 65536 ranges; a file with more ranges has several lines. LINES is the
number of lines with "path". A snapshot without the "end" line is incomplete. For a path that is not
UTF-8, "path_hex" has its bytes in hexadecimal, and "path" is only for display. Later programs may add
keys without changing the version."#;

const FORMAT: &str = "nowait cache";
const VERSION: u64 = 1;

/// The maximum number of ranges on one line. A file with more ranges has several lines.
pub const MAX_RANGES: usize = 65_536;
/// The maximum length of a line in bytes. Written lines are shorter: a range takes at most 42
/// bytes.
const MAX_LINE: u64 = 4 << 20;
/// The longest path in bytes that the kernel accepts, without its NUL.
const PATH_MAX: usize = 4095;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
}

/// The entry of one file, as it is written.
#[derive(Serialize)]
struct Entry<'a> {
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

/// Any line except the first, as it is read.
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
    /// Writes the header.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, lines: 0 };
        let header = Header {
            format: FORMAT.into(),
            version: VERSION,
        };
        writer.line(&header)?;
        Ok(writer)
    }

    /// Writes ranges of one file, at most [`MAX_RANGES`].
    pub fn entry(&mut self, path: &Path, stamp: &Stamp, ranges: &[(u64, u64)]) -> io::Result<()> {
        self.lines += 1;
        self.line(&Entry {
            name: Name::of(path),
            size: stamp.size,
            mtime: stamp.mtime,
            inode: stamp.inode,
            ranges,
        })
    }

    /// Writes the end and returns the underlying writer.
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

/// A snapshot that was checked to be complete.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    name: String,
}

impl Snapshot {
    /// Reads a snapshot to its end and checks that it is complete.
    pub fn check(file: File, name: String) -> Result<Snapshot, Problem> {
        let mut snapshot = Snapshot { file, name };
        snapshot.each(|_| Ok::<(), std::convert::Infallible>(()))?;
        Ok(snapshot)
    }

    /// Calls `each` with every entry, in order: a request, or an error for an invalid line. An
    /// error from `each` ends the iteration, and the result is then `Ok`.
    pub fn each<E>(
        &mut self,
        mut each: impl FnMut(Result<Request, InvalidEntry>) -> Result<(), E>,
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
            let cut_off = "the snapshot is cut off: its last line is missing; save it again";
            read_line(&mut input, &mut text).map_err(|e| refuse(number, &e))?;
            if text.is_empty() {
                return Err(refuse(number, &cut_off));
            }
            let parsed = serde_json::from_slice::<Line>(&text);
            let entry = match parsed {
                Ok(Line { end: Some(end), .. }) => {
                    if end.files != entries {
                        let why = format!(
                            "the snapshot has {entries} entries, and its last line says {}; save it \
                             again",
                            end.files
                        );
                        return Err(refuse(number, &why));
                    }
                    read_line(&mut input, &mut text).map_err(|e| refuse(number + 1, &e))?;
                    if text.is_empty() {
                        return Ok(());
                    }
                    return Err(refuse(number + 1, &"there is data after the end"));
                }
                Ok(line) => line.request(),
                // Well-formed JSON that is not an entry.
                Err(e) if e.is_data() => Err(e.to_string()),
                Err(_) if !text.ends_with(b"\n") => return Err(refuse(number, &cut_off)),
                Err(e) => return Err(refuse(number, &format_args!("not a snapshot: {e}"))),
            };
            entries += 1;
            let entry = entry.map_err(|why| InvalidEntry { line: number, why });
            if each(entry).is_err() {
                return Ok(());
            }
        }
    }
}

/// An invalid entry.
#[derive(Debug)]
pub struct InvalidEntry {
    pub line: u64,
    pub why: String,
}

/// Reads one line, including its newline, of less than [`MAX_LINE`] bytes. `line` is empty at the
/// end of the file.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    input.take(MAX_LINE).read_until(b'\n', line)?;
    if line.len() as u64 == MAX_LINE {
        return Err(io::Error::other("not a snapshot: the line is too long"));
    }
    Ok(())
}

fn check_header(line: &[u8]) -> Result<(), String> {
    let header: Header = serde_json::from_slice(line)
        .map_err(|_| "not a snapshot: the first line is not a snapshot's header".to_owned())?;
    if header.format != FORMAT {
        return Err("not a snapshot: the header names another format".into());
    }
    if header.version != VERSION {
        return Err(format!(
            "the snapshot has version {}, and this program supports version {VERSION}: save it again, \
             or restore it with the program that wrote it",
            header.version
        ));
    }
    Ok(())
}

impl Line {
    /// The request of this entry.
    ///
    /// # Errors
    /// A description, if the entry is not valid.
    fn request(self) -> Result<Request, String> {
        let missing = |what: &str| format!("the entry has no {what}");
        let path = match (self.path, self.path_hex) {
            (_, Some(hex)) => bytes_of(&hex).ok_or("path_hex is not hexadecimal")?,
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
            return Err("the size is larger than the largest possible file".into());
        }
        let ranges = self.ranges.ok_or_else(|| missing("ranges"))?;
        Ok(Request {
            selection: Some(Selection {
                ranges: check_ranges(&ranges, stamp.size)?,
                stamp,
            }),
            file: FileRef::given(path, stamp.inode, FileType::RegularFile),
        })
    }
}

/// Checks that a path is absolute and has no `.` or `..`.
fn check_path(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    let dots = |part: &[u8]| part == b"." || part == b"..";
    if !path.is_absolute() {
        Err("the path is not absolute".into())
    } else if bytes.len() > PATH_MAX {
        Err(format!("the path is longer than {PATH_MAX} bytes"))
    } else if bytes.contains(&0) {
        Err("the path contains a NUL byte".into())
    } else if bytes.split(|&b| b == b'/').any(dots) {
        Err("the path contains `.` or `..`".into())
    } else {
        Ok(())
    }
}

/// Checks that ranges are in order, not empty, do not overlap, and end within the file.
pub fn check_ranges(ranges: &[(u64, u64)], size: u64) -> Result<Vec<Range<u64>>, String> {
    if ranges.len() > MAX_RANGES {
        return Err(format!("the entry has more than {MAX_RANGES} ranges"));
    }
    let mut before = 0;
    let mut checked = Vec::with_capacity(ranges.len());
    for &(from, to) in ranges {
        let range = format_args!("range {from} to {to}").to_string();
        if from >= to {
            return Err(format!("{range} is empty"));
        }
        if to > size {
            return Err(format!("{range} is beyond the size {size}"));
        }
        if from < before {
            return Err(format!("{range} is not after the previous range"));
        }
        before = to;
        checked.push(from..to);
    }
    Ok(checked)
}
