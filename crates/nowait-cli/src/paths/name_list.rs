//! Lists of paths, each terminated by a NUL byte, as `find -print0` writes them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::messages::Messages;

/// PATH_MAX of the kernel: the longest path in bytes, including its NUL.
const PATH_MAX: u64 = 4096;

/// Calls `each` for all paths of the list in a file, in its order, until it returns an error. `-` is
/// standard input.
pub fn read<E>(
    list: &Path,
    messages: &Messages,
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
