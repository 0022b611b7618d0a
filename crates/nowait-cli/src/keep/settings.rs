//! The settings of a run, the list of paths, and the files that the status is written to.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nowait_page_cache::Allowed;

use super::own_file::OwnFile;
use super::report::Reports;
use super::status::Status;
use super::{list, prometheus, status_file};
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
    /// The file for Prometheus, and its path.
    pub prometheus: Option<(PathBuf, SharedFile)>,
    /// The file for --status; `None` if there is no directory for it.
    pub status: Option<SharedFile>,
}

/// A file that is removed at the end, also if the keeper does not end because it waits for a device.
#[derive(Clone)]
pub struct SharedFile(Arc<Mutex<OwnFile>>);

impl SharedFile {
    /// A file that the keeper writes.
    pub fn new(file: OwnFile) -> SharedFile {
        SharedFile(Arc::new(Mutex::new(file)))
    }

    /// Removes the file, unless it is being written.
    pub fn remove(&self) {
        if let Ok(mut file) = self.0.try_lock() {
            file.remove();
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut OwnFile) -> T) -> T {
        // A panic cannot leave the value inconsistent.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
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
            && let Err(e) = file.with(|file| status_file::write(file, status))
        {
            reports.say(format_args!(
                "the status for --status cannot be written: {e}"
            ));
        }
        if let Some((path, file)) = &self.prometheus {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text = prometheus::text(status, &name);
            if let Err(e) = file.with(|file| file.write(text.as_bytes())) {
                reports.say_of(path, e);
            }
        }
    }
}

/// The file for Prometheus. Numbers of a process that has ended are wrong, so it is removed at the end.
///
/// # Errors
/// The reason why a file that is there must not be replaced.
pub fn prometheus_file(path: PathBuf) -> Result<SharedFile, String> {
    OwnFile::claim(path, PUBLIC, prometheus::BEGIN).map(SharedFile::new)
}
