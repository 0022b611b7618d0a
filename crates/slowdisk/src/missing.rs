//! Checks for the requirements of this crate, and functions to skip tests that lack them.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

const CAP_SYS_ADMIN: u32 = 21;

/// A missing requirement, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    what: String,
}

impl Missing {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Missing { what: what.into() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Missing {}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error::new(
            "not possible here",
            io::Error::new(io::ErrorKind::Unsupported, missing),
        )
    }
}

/// Returns `Ok` if a [`SlowDisk`](crate::SlowDisk) and a [`LoopDevice`](crate::LoopDevice) on it
/// can be made here. For a filesystem on it see
/// [`Filesystem::available`](crate::Filesystem::available).
pub fn available() -> Result<(), Missing> {
    privileged()?;
    if !Path::new("/dev/fuse").exists() {
        return Err(Missing::new(
            "/dev/fuse is missing (modprobe fuse; in a container: --device /dev/fuse)",
        ));
    }
    loop_devices()?;
    for (name, package) in [
        ("sh", "dash"),
        ("setsid", "util-linux"),
        ("umount", "mount"),
        ("losetup", "mount"),
    ] {
        program(name, package)?;
    }
    Ok(())
}

/// Prints on standard error that a test is skipped, and what is missing.
///
/// # Panics
///
/// If the environment has `NOWAIT_TEST_ALL=1`: a skip is then a failure.
pub fn skip_or_fail(missing: impl fmt::Display) {
    if env::var_os("NOWAIT_TEST_ALL").is_some_and(|v| v == "1") {
        panic!("NOWAIT_TEST_ALL=1 and {missing}");
    }
    eprintln!("skipped: {missing}");
}

/// The value of an `Ok`. On `Err`, prints what is missing and returns from the test (see
/// [`skip_or_fail`]).
///
/// ```no_run
/// fn reads_past_a_bad_block() {
///     slowdisk::require!(slowdisk::available());
///     slowdisk::require!(slowdisk::Filesystem::Xfs.available());
///     // ...
/// }
/// ```
#[macro_export]
macro_rules! require {
    ($needed:expr) => {
        match $needed {
            Ok(value) => value,
            Err(missing) => {
                $crate::skip_or_fail(missing);
                return;
            }
        }
    };
}

pub(crate) fn privileged() -> Result<(), Missing> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    if effective & (1 << CAP_SYS_ADMIN) == 0 {
        return Err(Missing::new("not root (CAP_SYS_ADMIN is missing)"));
    }
    Ok(())
}

pub(crate) fn loop_devices() -> Result<(), Missing> {
    if Path::new("/dev/loop-control").exists() {
        return Ok(());
    }
    Err(Missing::new(
        "/dev/loop-control is missing (modprobe loop; in a container: --privileged)",
    ))
}

/// The path of the program `name`; `package` is its Debian package.
pub(crate) fn program(name: &str, package: &str) -> Result<PathBuf, Missing> {
    // mkfs programs are in /usr/sbin, which a user's PATH may lack.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Missing::new(format!("{name} is missing (Debian package {package})")))
}

/// Returns `Ok` if the kernel has the filesystem `name`. Loads its module if necessary.
pub(crate) fn kernel_filesystem(name: &str) -> Result<(), Missing> {
    let known = || {
        fs::read_to_string("/proc/filesystems")
            .unwrap_or_default()
            .lines()
            .any(|line| line.split_whitespace().next_back() == Some(name))
    };
    if !known() {
        // The result is read from /proc/filesystems.
        let _ = Command::new("modprobe").args(["-q", name]).status();
    }
    if known() {
        return Ok(());
    }
    Err(Missing::new(format!("this kernel does not support {name}")))
}
