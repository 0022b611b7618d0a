//! Lists of files with ranges of bytes: the format of cache snapshots and of learnt profiles. The reader does not
//! trust its input.
//!
//! ```text
//!  {"format": …, "version": …}   {"path": …, "ranges": …} …   {"end": {…: the number of lines between}}
//! ```
//! A list is JSON, one value per line, and is never held in memory as a whole.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nowait_page_cache::Stamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::name::{Name, bytes_of};

/// A kind of list.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The value of `"format"` in the first line.
    pub name: &'static str,
    pub version: u64,
    /// The kind of list, in messages.
    pub kind: &'static str,
    /// The message about a file that is none.
    pub none: &'static str,
    /// The key of the number of lines in the last line.
    pub count: &'static str,
    /// The remedy for a list that cannot be read, in messages.
    pub remedy: &'static str,
}

/// The maximum number of ranges on one line. A file with more ranges has several lines.
pub const MAX_RANGES: usize = 65_536;
/// The maximum length of a line in bytes. Written lines are shorter: a range takes at most 42
/// bytes.
const MAX_LINE: u64 = 4 << 20;
/// The longest path in bytes that the kernel accepts, without its NUL.
const PATH_MAX: usize = libc::PATH_MAX as usize - 1;

/// The first line. Each kind of list has further keys.
#[derive(Serialize)]
struct Header<'a, H> {
    format: &'a str,
    version: u64,
    #[serde(flatten)]
    more: &'a H,
}

/// The keys of the first line that all lists have.
#[derive(Deserialize)]
struct KnownHeader {
    format: String,
    version: u64,
}

/// A line of a path, as it is written.
#[derive(Serialize)]
pub struct Written<'a> {
    #[serde(flatten)]
    name: Name<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<(i64, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<&'a [(u64, u64)]>,
    #[serde(flatten)]
    uses: Uses,
}

/// The keys that only profiles have. See their format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Uses {
    /// The names of the directory were listed.
    #[serde(skip_serializing_if = "is_default")]
    pub listed: bool,
    /// Many names of the directory were looked up.
    #[serde(rename = "names", skip_serializing_if = "is_default")]
    pub many_looked_up: bool,
    /// A filesystem was unmounted here. A file that is open there would make umount(2) fail.
    #[serde(skip_serializing_if = "is_default")]
    pub unmounted: bool,
    /// The number of runs since the last use.
    #[serde(skip_serializing_if = "is_default")]
    pub unused: u32,
}

/// Any line but the first, as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    end: Option<End>,
    path: Option<String>,
    path_hex: Option<String>,
    size: Option<u64>,
    mtime: Option<(i64, u32)>,
    inode: Option<u64>,
    ranges: Option<Vec<(u64, u64)>>,
    listed: bool,
    names: bool,
    unmounted: bool,
    unused: u32,
}

#[derive(Deserialize)]
struct End {
    #[serde(alias = "lines")]
    files: u64,
}

/// A path of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    pub path: PathBuf,
    /// The file as it was, and ranges of it. `None` if the path alone is listed.
    pub file: Option<(Stamp, Vec<Range<u64>>)>,
    pub uses: Uses,
}

/// The reason why a list is refused, and the number of the line.
#[derive(Debug)]
pub struct Refused {
    line: u64,
    why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl<'a> Written<'a> {
    /// The line of a path. With a file's stamp, the ranges are at most [`MAX_RANGES`].
    pub fn new(
        path: &'a Path,
        file: Option<(&Stamp, &'a [(u64, u64)])>,
        uses: Uses,
    ) -> Written<'a> {
        Written {
            name: Name::of(path),
            size: file.map(|(stamp, _)| stamp.size),
            mtime: file.map(|(stamp, _)| stamp.mtime),
            inode: file.map(|(stamp, _)| stamp.inode),
            ranges: file.map(|(_, ranges)| ranges),
            uses,
        }
    }
}

/// Writes a list.
pub struct Writer<W: Write> {
    out: W,
    count: &'static str,
    lines: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the first line, with the keys of `more`.
    ///
    /// # Errors
    /// Of the writer.
    pub fn new(out: W, format: &Format, more: &impl Serialize) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            out,
            count: format.count,
            lines: 0,
        };
        let (format, version) = (format.name, format.version);
        writer.json(&Header {
            format,
            version,
            more,
        })?;
        Ok(writer)
    }

    /// Writes the line of a path.
    ///
    /// # Errors
    /// Of the writer.
    pub fn line(&mut self, line: &Written<'_>) -> io::Result<()> {
        self.lines += 1;
        self.json(line)
    }

    /// Writes the end and returns the underlying writer.
    ///
    /// # Errors
    /// Of the writer.
    pub fn end(mut self) -> io::Result<W> {
        let (count, lines) = (self.count, self.lines);
        self.json(&serde_json::json!({ "end": { count: lines } }))?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")
    }
}

/// Reads a list.
pub struct Reader<R> {
    input: R,
    format: Format,
    text: Vec<u8>,
    /// The number of lines of paths so far.
    lines: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line, and returns the further keys of it.
    ///
    /// # Errors
    /// The reason why it is not a list of this format.
    pub fn new<H: DeserializeOwned>(input: R, format: &Format) -> Result<(H, Reader<R>), Refused> {
        let mut reader = Reader {
            input,
            format: *format,
            text: Vec::new(),
            lines: 0,
        };
        let line = 1;
        let refused = |why| Refused { line, why };
        reader.read_line(line)?;
        check_header(&reader.text, format).map_err(refused)?;
        let more = serde_json::from_slice(&reader.text);
        let more = more.map_err(|e| refused(format!("{}: {e}", format.none)))?;
        Ok((more, reader))
    }

    /// The next path, or the reason why its line is not valid. `None` after the last one.
    ///
    /// # Errors
    /// The reason why the list is not complete.
    pub fn next(&mut self) -> Result<Option<Result<Listed, String>>, Refused> {
        let Format { kind, remedy, .. } = self.format;
        let line = self.lines + 2;
        let refused = |why| Err(Refused { line, why });
        let cut_off = || format!("the {kind} is cut off: its last line is missing; {remedy}");
        self.read_line(line)?;
        if self.text.is_empty() {
            return refused(cut_off());
        }
        let listed = match serde_json::from_slice::<Line>(&self.text) {
            Ok(Line { end: Some(end), .. }) => {
                if end.files != self.lines {
                    return refused(format!(
                        "the {kind} has {} entries, and its last line says {}; {remedy}",
                        self.lines, end.files
                    ));
                }
                self.read_line(line + 1)?;
                return match self.text.is_empty() {
                    true => Ok(None),
                    false => Err(Refused {
                        line: line + 1,
                        why: "there is data after the end".into(),
                    }),
                };
            }
            Ok(line) => line.listed(),
            // Well-formed JSON that is not an entry.
            Err(e) if e.is_data() => Err(e.to_string()),
            Err(_) if !self.text.ends_with(b"\n") => return refused(cut_off()),
            Err(e) => return refused(format!("{}: {e}", self.format.none)),
        };
        self.lines += 1;
        Ok(Some(listed))
    }

    /// The number of the line that was read last.
    pub fn line(&self) -> u64 {
        self.lines + 1
    }

    /// Reads one line, including its newline. It is empty at the end of the file.
    fn read_line(&mut self, line: u64) -> Result<(), Refused> {
        self.text.clear();
        let mut limited = self.input.by_ref().take(MAX_LINE);
        let read = limited.read_until(b'\n', &mut self.text);
        let why = match read {
            Ok(length) if length as u64 == MAX_LINE => {
                format!("{}: the line is too long", self.format.none)
            }
            Ok(_) => return Ok(()),
            Err(e) => e.to_string(),
        };
        Err(Refused { line, why })
    }
}

fn check_header(line: &[u8], format: &Format) -> Result<(), String> {
    let Format {
        kind,
        version,
        remedy,
        ..
    } = format;
    let none = format.none;
    if line.is_empty() {
        return Err(format!("{none}: the file is empty or cut off"));
    }
    let header: KnownHeader = serde_json::from_slice(line)
        .map_err(|_| format!("{none}: the first line is not a {kind}'s header"))?;
    if header.format != format.name {
        return Err(format!("{none}: the header names another format"));
    }
    if header.version != *version {
        return Err(format!(
            "the {kind} has version {}, and this program supports version {version}: {remedy}, or use the \
             program that wrote it",
            header.version
        ));
    }
    Ok(())
}

impl Line {
    /// The path of this line.
    ///
    /// # Errors
    /// A description, if the line is not valid.
    fn listed(self) -> Result<Listed, String> {
        let missing = |what: &str| format!("the entry has no {what}");
        let path = path(self.path, self.path_hex)?.ok_or_else(|| missing("path"))?;
        if path.as_os_str().is_empty() {
            return Err("the path is empty".into());
        }
        let of_file = [
            self.size.is_some(),
            self.mtime.is_some(),
            self.inode.is_some(),
            self.ranges.is_some(),
        ];
        let file = match of_file.contains(&true) {
            false => None,
            true => {
                let stamp = Stamp {
                    size: self.size.ok_or_else(|| missing("size"))?,
                    mtime: self.mtime.ok_or_else(|| missing("mtime"))?,
                    inode: self.inode.ok_or_else(|| missing("inode"))?,
                };
                let ranges = self.ranges.ok_or_else(|| missing("ranges"))?;
                Some((stamp, check_ranges(&ranges, stamp.size)?))
            }
        };
        Ok(Listed {
            path,
            file,
            uses: Uses {
                listed: self.listed,
                many_looked_up: self.names,
                unmounted: self.unmounted,
                unused: self.unused,
            },
        })
    }
}

/// A path from its keys. `None` if it is missing.
///
/// # Errors
/// A description, if it cannot be a path.
pub fn path(text: Option<String>, hexadecimal: Option<String>) -> Result<Option<PathBuf>, String> {
    let bytes = match (text, hexadecimal) {
        (_, Some(hex)) => bytes_of(&hex).ok_or("path_hex is not hexadecimal")?,
        (Some(path), None) => path.into_bytes(),
        (None, None) => return Ok(None),
    };
    if bytes.len() > PATH_MAX {
        Err(format!("the path is longer than {PATH_MAX} bytes"))
    } else if bytes.contains(&0) {
        Err("the path contains a NUL byte".into())
    } else {
        Ok(Some(OsString::from_vec(bytes).into()))
    }
}

/// Checks that ranges are in order, not empty, do not overlap, and end within the file.
fn check_ranges(ranges: &[(u64, u64)], size: u64) -> Result<Vec<Range<u64>>, String> {
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
