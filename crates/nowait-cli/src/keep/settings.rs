//! The settings of a run, the list of paths, and the files that the status is written to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_page_cache::Allowed;

use super::report::Reports;
use super::status::Status;
use super::status_file::{StatusFile, replace};
use super::{list, prometheus};
use crate::name::DisplayPath;

/// The mode of the file for Prometheus: its collector is another user.
const PUBLIC: u32 = 0o644;

/// The settings of a run.
pub struct Settings {
    pub paths: Vec<PathBuf>,
    /// The file that names the paths.
    pub list: Option<PathBuf>,
    pub budget: Allowed,
    pub rate: Option<u64>,
    pub interval: Duration,
    pub lock: bool,
    pub one_file_system: bool,
    pub prometheus: Option<PathBuf>,
    /// `None` if there is no directory for it.
    pub status: Option<StatusFile>,
}

impl Settings {
    /// The paths, in order of importance.
    ///
    /// # Errors
    /// A message, if the list cannot be read or has no path.
    pub fn paths(&self, reports: &Reports) -> Result<Vec<PathBuf>, String> {
        match &self.list {
            None => Ok(list::once(self.paths.clone())),
            Some(list) => {
                list::read(list, reports).map_err(|why| format!("{}: {why}", DisplayPath(list)))
            }
        }
    }

    /// Writes the status. Failures are reported.
    pub fn write(&self, status: &Status, reports: &Reports) {
        if let Some(file) = &self.status
            && let Err(e) = file.write(status)
        {
            reports.say(format_args!(
                "the status for --status cannot be written: {e}"
            ));
        }
        if let Some(file) = &self.prometheus {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            let text = prometheus::text(status, &name);
            if let Err(e) = replace(file, text.as_bytes(), PUBLIC) {
                reports.say_of(file, e);
            }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        if let Some(file) = &self.prometheus {
            remove(file);
        }
    }
}

/// Removes the file for Prometheus: numbers of a process that has ended are wrong.
pub fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}
