//! Pseudo filesystems, such as those at /proc and /sys. Their files have no pages in the page
//! cache, and some files have an effect when they are opened. A walk does not enter them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nowait::DisplayPath;
use nowait::walk;
use rustix::fs::{major, minor};

use crate::proc;
use crate::reporter::Reporter;

/// The types of filesystems that are not entered; see filesystems(5) and /proc/filesystems.
const TYPES: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// The mounted pseudo filesystems, by their device numbers.
#[derive(Debug, Default)]
pub struct PseudoDevices(HashMap<(u32, u32), String>);

impl PseudoDevices {
    /// Reads the mounts of a process, `self` or a number. Without /proc there are none.
    pub fn of(process: impl Display) -> PseudoDevices {
        let mut devices = HashMap::new();
        for line in proc::lines(&proc::read(format!("/proc/{process}/mountinfo"))) {
            if let (Some(device), Some((_, kind))) = (proc::mount_device(line), proc::mount(line))
                && TYPES.contains(&kind.as_str())
            {
                devices.insert(device, kind);
            }
        }
        PseudoDevices(devices)
    }

    /// The type of the pseudo filesystem with this device number (`st_dev`); `None` for others.
    pub fn kind(&self, device: u64) -> Option<&str> {
        let kind = self.0.get(&(major(device), minor(device)))?;
        Some(kind)
    }
}

/// The pseudo filesystems below one root.
pub struct PseudoMounts(Arc<Inner>);

struct Inner {
    root: PathBuf,
    /// The root without symbolic links.
    absolute: PathBuf,
    /// The types of the filesystems at their mount points below the root.
    mounts: HashMap<PathBuf, String>,
    /// The mount points at which the walk stopped.
    skipped: Mutex<BTreeMap<PathBuf, String>>,
}

impl PseudoMounts {
    /// Reads the mount points below a root. Without /proc there are none.
    pub fn below(root: &Path) -> PseudoMounts {
        let absolute = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
        let mut mounts = HashMap::new();
        for line in proc::lines(&proc::read("/proc/self/mountinfo")) {
            // A mount at the same point hides the earlier one.
            if let Some((at, kind)) = proc::mount(line)
                && at.starts_with(&absolute)
                && at != absolute
            {
                mounts.insert(at, kind);
            }
        }
        mounts.retain(|_, kind| TYPES.contains(&kind.as_str()));
        PseudoMounts(Arc::new(Inner {
            root: root.to_owned(),
            absolute,
            mounts,
            skipped: Mutex::default(),
        }))
    }

    /// Options with which a walk of the root does not enter the pseudo filesystems.
    pub fn skipped_by(&self, options: walk::Options) -> walk::Options {
        if self.0.mounts.is_empty() {
            return options;
        }
        let inner = self.0.clone();
        options.filter_dirs(move |path, _| inner.is_entered(path))
    }

    /// Reports the filesystems that were skipped.
    pub fn report(&self, reporter: &dyn Reporter) {
        let skipped = self
            .0
            .skipped
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if skipped.is_empty() {
            return;
        }
        let mut list = String::new();
        for (at, kind) in skipped.iter() {
            let comma = if list.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(list, "{comma}{} ({kind})", DisplayPath(at));
        }
        let (count, s) = (skipped.len(), if skipped.len() == 1 { "" } else { "s" });
        let what = format_args!("skipped {count} pseudo filesystem{s}: {list}");
        reporter.note(&self.0.root, &what);
    }
}

impl Inner {
    fn is_entered(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        let at = self.absolute.join(below);
        let Some(kind) = self.mounts.get(&at) else {
            return true;
        };
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.insert(at, kind.clone());
        false
    }
}
