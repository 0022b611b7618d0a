//! The file that is read, and the file that is written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::harness::files::make;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The file that is written. Dropping it removes it.
pub struct Scratch {
    pub path: PathBuf,
}

/// Makes the file to read, unless it exists.
pub fn make_missing(path: &Path, size: u64, stop: &Stop) -> Result<(), Problem> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(Problem::Failed(format!(
            "{shown} is not a regular file: name another --file"
        ))),
        Ok(there) if there.len() >= size => Ok(()),
        Ok(there) => Err(Problem::Failed(format!(
            "{shown} has {} bytes and is smaller than --size {}: name another --file, or choose a smaller \
             --size",
            there.len(),
            Size(size)
        ))),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory).map_err(|e| {
                    Problem::Failed(format!(
                        "cannot make {}: {e}; name a --file in a directory that you may write to",
                        directory.display()
                    ))
                })?;
            }
            make(&[(path, size)], stop)
        }
        Err(e) => Err(Problem::of(shown, e)),
    }
}

impl Scratch {
    /// Makes it in the directory of the file to read.
    pub fn beside(path: &Path, size: u64, stop: &Stop) -> Result<Scratch, Problem> {
        let mut name = path.as_os_str().to_owned();
        name.push(".write");
        let path = PathBuf::from(name);
        if path.exists() {
            return Err(Problem::Failed(format!(
                "{} exists, and it would be overwritten: remove it, or name another --file",
                path.display()
            )));
        }
        make(&[(&path, size)], stop)?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
