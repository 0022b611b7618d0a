//! The machine and the filesystem of a measurement.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::memory;
use nowait_cli::problem::Problem;

/// A description of the machine for readers of the figures. No result depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub arch: String,
    pub cores: usize,
    pub filesystem: Option<String>,
    /// The name of the block device; `None` if the filesystem has more than one or none.
    pub device: Option<String>,
    pub read_ahead_kb: Option<u64>,
    pub rotational: Option<bool>,
    pub scheduler: Option<String>,
    /// True for a virtual machine that tells its host which memory is free.
    #[serde(default)]
    pub free_page_reporting: bool,
}

impl Machine {
    /// Describes this machine. `path` is the device, or a file or directory on it.
    pub fn look(path: &Path) -> Result<Machine, Problem> {
        let uname = rustix::system::uname();
        let handle = nowait::Handle::new(super::files::open(path)?)?;
        let stat = rustix::fs::stat(path).map_err(|e| Problem::of(path.display(), e))?;
        let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
        let device = device(match is_device {
            true => stat.st_rdev,
            false => handle.filesystem().device(),
        });
        let queue = |name: &str| {
            let path = device.as_ref()?.join("queue").join(name);
            Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
        };
        Ok(Machine {
            kernel: uname.release().to_string_lossy().into_owned(),
            arch: uname.machine().to_string_lossy().into_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            filesystem: match is_device {
                true => Some("no filesystem".into()),
                false => handle.filesystem().name().map(str::to_owned),
            },
            read_ahead_kb: queue("read_ahead_kb").and_then(|kb| kb.parse().ok()),
            rotational: queue("rotational").map(|flag| flag == "1"),
            scheduler: queue("scheduler").map(|all| chosen(&all)),
            free_page_reporting: memory::is_reported(),
            device: device
                .as_deref()
                .and_then(Path::file_name)
                .map(|name| name.to_string_lossy().into_owned()),
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let filesystem = self
            .filesystem
            .as_deref()
            .unwrap_or("an unknown filesystem");
        write!(
            f,
            "Linux {}, {} cores, {filesystem}",
            self.kernel, self.cores
        )?;
        match (&self.device, self.read_ahead_kb) {
            (Some(device), Some(kb)) => write!(f, " on {device} (read_ahead_kb {kb})"),
            _ => Ok(()),
        }
    }
}

/// The directory in /sys of the disk with this device number. The queue of a partition is that of
/// its disk.
fn device(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if path.join("queue").exists() {
        Some(path)
    } else {
        path.parent().map(Path::to_path_buf)
    }
}

/// The scheduler in brackets, which is the one in use.
fn chosen(all: &str) -> String {
    let inside = all
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(all, |(name, _)| name).to_owned()
}
