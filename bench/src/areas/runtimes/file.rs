//! The file that is written.

use std::path::{Path, PathBuf};

use crate::harness::files::make;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

/// The file that is written. Dropping it removes it.
pub struct Scratch {
    pub path: PathBuf,
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
