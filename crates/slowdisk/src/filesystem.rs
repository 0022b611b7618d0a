//! The supported filesystems, and the commands that make them.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Doing, Error, Result};
use crate::missing::{self, Missing};

/// A filesystem under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filesystem {
    /// ext4 on a block device.
    Ext4,
    /// xfs on a block device of at least 300 MiB.
    Xfs,
    /// btrfs on a block device of at least 128 MiB.
    Btrfs,
    /// tmpfs, which has no device.
    Tmpfs,
    /// overlayfs, with its lower and upper directory on one ext4.
    Overlay,
}

/// The number of further runs of mkfs while the disk of another program is being taken down.
const ATTEMPTS: u32 = 50;
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(100);

impl Filesystem {
    /// All filesystems.
    pub const ALL: [Filesystem; 5] = [
        Filesystem::Ext4,
        Filesystem::Xfs,
        Filesystem::Btrfs,
        Filesystem::Tmpfs,
        Filesystem::Overlay,
    ];

    /// The kernel's name of the filesystem.
    pub fn name(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
            Filesystem::Btrfs => "btrfs",
            Filesystem::Tmpfs => "tmpfs",
            Filesystem::Overlay => "overlay",
        }
    }

    /// Returns `Ok` if the filesystem can be made and mounted on an image here. A
    /// [`SlowDisk`](crate::SlowDisk) also needs [`available`](crate::available).
    pub fn available(self) -> Result<(), Missing> {
        missing::privileged()?;
        for (name, package) in [
            ("sh", "dash"),
            ("setsid", "util-linux"),
            ("umount", "mount"),
        ] {
            missing::program(name, package)?;
        }
        missing::kernel_filesystem(self.name())?;
        if self == Filesystem::Overlay {
            return Filesystem::Ext4.available();
        }
        if let Some((program, package)) = self.mkfs() {
            missing::program("losetup", "mount")?;
            missing::program(program, package)?;
            missing::loop_devices()?;
        }
        Ok(())
    }

    /// The program that makes the filesystem, and its Debian package.
    fn mkfs(self) -> Option<(&'static str, &'static str)> {
        match self {
            Filesystem::Ext4 => Some(("mkfs.ext4", "e2fsprogs")),
            Filesystem::Xfs => Some(("mkfs.xfs", "xfsprogs")),
            Filesystem::Btrfs => Some(("mkfs.btrfs", "btrfs-progs")),
            Filesystem::Tmpfs | Filesystem::Overlay => None,
        }
    }

    /// Makes the filesystem on `device`, which must read as zeros.
    pub(crate) fn make(self, device: &Path, more: &[String]) -> Result<()> {
        let Some((name, package)) = self.mkfs() else {
            let cause = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::new(format!("{self} has no device"), cause));
        };
        let program = missing::program(name, package)?;
        let quiet: &[&str] = match self {
            // The device reads as zeros, so nothing is initialised now or later (see
            // mount_options).
            Filesystem::Ext4 => &[
                "-q",
                "-F",
                "-E",
                "nodiscard,lazy_itable_init=1,lazy_journal_init=1",
            ],
            _ => &["-q", "-f", "-K"],
        };
        let run = || {
            let mut command = Command::new(&program);
            command.args(quiet).args(more).arg(device);
            let output = command.stdin(Stdio::null()).output();
            output.doing(|| format!("running {name}"))
        };
        let mut output = run()?;
        // mkfs.btrfs looks at the files of all loop devices. A disk of another program that is
        // being taken down has a file without a server.
        for _ in 0..ATTEMPTS {
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.success() || !said.contains("cannot check mount status") {
                break;
            }
            std::thread::sleep(PAUSE);
            output = run()?;
        }
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        // mkfs.xfs prints its usage after the error.
        let said = said.split("\nUsage:").next().unwrap_or_default();
        let said = said.trim().to_owned();
        let doing = format!("{name} {}", device.display());
        Err(Error::new(doing, io::Error::other(said)))
    }

    /// The mount options that are always used.
    pub(crate) fn mount_options(self) -> &'static str {
        match self {
            // Prevents a kernel thread from writing inode tables during a test.
            Filesystem::Ext4 => "noinit_itable",
            _ => "",
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Filesystem {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Filesystem::ALL
            .into_iter()
            .find(|filesystem| filesystem.name() == name)
            .ok_or_else(|| {
                let known = Filesystem::ALL.map(Filesystem::name).join(", ");
                format!("unknown filesystem {name:?}; use {known}")
            })
    }
}
