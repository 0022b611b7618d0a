//! The paths to keep, in order of importance: those of the command line, or the lines of a file.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nowait_page_cache::{Reporter, proc};

/// The largest list in bytes.
const MAX_LIST: u64 = 16 << 20;

/// PATH_MAX of the kernel: the longest path in bytes, including its NUL.
const PATH_MAX: usize = 4096;

/// Reads the list in a file. Lines that cannot be paths are reported and skipped.
///
/// # Errors
/// A message, if the file cannot be read or has no path.
pub fn read(list: &Path, reporter: &dyn Reporter) -> Result<Vec<PathBuf>, String> {
    let mut text = Vec::new();
    let read = File::open(list).and_then(|file| file.take(MAX_LIST + 1).read_to_end(&mut text));
    match read {
        Err(e) => return Err(format!("cannot read the list: {e}")),
        Ok(n) if n as u64 > MAX_LIST => return Err("the list is larger than 16M".into()),
        Ok(_) => {}
    }
    let mut paths = Vec::new();
    for (number, line) in (1..).zip(proc::lines(&text)) {
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            continue;
        }
        if line.len() >= PATH_MAX {
            let why = format!("line {number} is longer than any path; it is skipped");
            reporter.failure(list, None, &why);
        } else if line.contains(&0) {
            let why = format!("line {number} has a NUL byte; it is skipped");
            reporter.failure(list, None, &why);
        } else {
            paths.push(PathBuf::from(OsString::from_vec(line.to_vec())));
        }
    }
    match paths.is_empty() {
        true => Err("the list has no paths".into()),
        false => Ok(once(paths)),
    }
}

/// The paths without repetitions.
pub fn once(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}
