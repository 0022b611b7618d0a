//! The paths that a command line names: as arguments, or in a file, each terminated by a NUL byte,
//! as `find -print0` writes them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::messages::Messages;
use crate::stop::Stop;

/// The arguments that name paths. A verb sets what applies without any in `#[command(mut_arg)]`.
#[derive(Debug, clap::Args)]
pub struct PathList {
    /// Directories and other files
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Read the paths from FILE, each terminated by a NUL byte, as `find -print0` writes them. `-`
    /// is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    files0_from: Option<PathBuf>,
}

/// PATH_MAX of the kernel: the longest path in bytes, including its NUL.
const PATH_MAX: u64 = 4096;

impl PathList {
    /// Returns true if a file with one name could be found twice.
    pub fn may_overlap(&self) -> bool {
        self.files0_from.is_some() || self.paths.len() > 1
    }

    /// The paths that are arguments; `None` if they are in a file.
    pub fn given(&self) -> Option<&[PathBuf]> {
        self.files0_from.is_none().then_some(&self.paths)
    }

    /// Calls `each` for every path, in the given order, until it returns an error or a stop is
    /// requested.
    pub fn each<E>(
        &self,
        messages: &Messages,
        stop: &Stop,
        mut each: impl FnMut(&Path) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(list) = &self.files0_from {
            return read(list, messages, stop, each);
        }
        let mut paths = self.paths.iter().take_while(|_| !stop.asked());
        paths.try_for_each(|path| each(path))
    }
}

/// Calls `each` for all paths of the list in a file, in its order, until it returns an error or a
/// stop is requested. `-` is standard input.
fn read<E>(
    list: &Path,
    messages: &Messages,
    stop: &Stop,
    mut each: impl FnMut(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let open = || -> io::Result<Box<dyn Read>> {
        if list == "-" {
            return Ok(Box::new(io::stdin()));
        }
        Ok(Box::new(File::open(list)?))
    };
    let mut names = match open() {
        Ok(input) => BufReader::new(input),
        Err(e) => {
            messages.failure(list, format_args!("cannot read the list: {e}"));
            return Ok(());
        }
    };
    let mut name = Vec::new();
    for number in 1u64.. {
        if stop.asked() {
            break;
        }
        name.clear();
        match (&mut names).take(PATH_MAX).read_until(0, &mut name) {
            Ok(0) => break,
            Ok(_) if name.last() == Some(&0) => _ = name.pop(),
            // The last name may lack its NUL.
            Ok(n) if (n as u64) < PATH_MAX => {}
            Ok(_) => {
                let why = format_args!("name {number} is longer than any path; it is skipped");
                messages.failure(list, why);
                if names.skip_until(0).is_err() {
                    break;
                }
                continue;
            }
            Err(e) => {
                messages.failure(list, format_args!("cannot read the rest of the list: {e}"));
                break;
            }
        }
        if name.is_empty() {
            messages.failure(list, format_args!("name {number} is empty; it is skipped"));
            continue;
        }
        each(Path::new(OsStr::from_bytes(&name)))?;
    }
    Ok(())
}
