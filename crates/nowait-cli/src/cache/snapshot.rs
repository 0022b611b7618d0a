//! Snapshots of `nowait cache`: lists of files with their cached ranges. A file that is not a complete
//! snapshot is refused before any entry is used. An invalid entry is skipped.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nowait_page_cache::{FileRef, Request, Selection};
use rustix::fs::FileType;

use crate::file_list::{Format, Listed, Reader};
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

/// The format of snapshots.
pub const FORMAT: Format = Format {
    name: "nowait cache",
    version: 1,
    kind: "snapshot",
    none: "not a snapshot",
    count: "files",
    remedy: "save it again",
};

/// A snapshot that was checked to be complete.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    name: String,
    /// The number of bytes in the ranges of all valid entries.
    pub bytes: u64,
}

/// The keys of the first line beside those of all lists: none.
#[derive(serde::Deserialize)]
struct NoMore {}

impl Snapshot {
    /// Reads a snapshot to its end and checks that it is complete.
    pub fn check(file: File, name: String) -> Result<Snapshot, Problem> {
        let mut snapshot = Snapshot {
            file,
            name,
            bytes: 0,
        };
        let mut bytes = 0u64;
        snapshot.each(|entry| {
            let selection = entry.ok().and_then(|request| request.selection);
            bytes = bytes.saturating_add(selection.map_or(0, |selection| selection.bytes()));
            Ok::<(), std::convert::Infallible>(())
        })?;
        Ok(Snapshot { bytes, ..snapshot })
    }

    /// Calls `each` with every entry, in order: a request, or an error for an invalid line. An
    /// error from `each` ends the iteration, and the result is then `Ok`.
    pub fn each<E>(
        &mut self,
        mut each: impl FnMut(Result<Request, InvalidEntry>) -> Result<(), E>,
    ) -> Result<(), Problem> {
        let refuse = |why| Problem::Failed(format!("{} {why}", self.name));
        self.file.rewind().map_err(|e| Problem::of(&self.name, e))?;
        let input = BufReader::new(&self.file);
        let (NoMore {}, mut list) = Reader::new(input, &FORMAT).map_err(refuse)?;
        while let Some(listed) = list.next().map_err(refuse)? {
            let line = list.line();
            let entry = listed.and_then(request);
            if each(entry.map_err(|why| InvalidEntry { line, why })).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// An invalid entry.
#[derive(Debug)]
pub struct InvalidEntry {
    pub line: u64,
    pub why: String,
}

/// The request of an entry.
///
/// # Errors
/// A description, if the entry is not valid.
fn request(entry: Listed) -> Result<Request, String> {
    check_path(&entry.path)?;
    let (stamp, ranges) = entry.file.ok_or("the entry has no size")?;
    if stamp.size > i64::MAX as u64 {
        return Err("the size is larger than the largest possible file".into());
    }
    Ok(Request {
        file: FileRef::given(entry.path, stamp.inode, FileType::RegularFile),
        selection: Some(Selection { ranges, stamp }),
    })
}

/// Checks that a path is absolute and has no `.` or `..`.
fn check_path(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    let dots = |part: &[u8]| part == b"." || part == b"..";
    if !path.is_absolute() {
        Err("the path is not absolute".into())
    } else if bytes.split(|&b| b == b'/').any(dots) {
        Err("the path contains `.` or `..`".into())
    } else {
        Ok(())
    }
}
