//! The connection between a FUSE mount and its server, which can be aborted through fusectl.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::minor;
use rustix::mount::{MountFlags, mount};

/// The mount point of fusectl.
const CONTROL: &str = "/sys/fs/fuse/connections";

/// The connection of a FUSE mount.
///
/// The kernel gives the number of a connection again after its end. This value holds an open file
/// of fusectl, which never belongs to a later connection.
#[derive(Debug)]
pub(crate) struct Connection {
    abort: File,
}

impl Connection {
    /// The connection of the filesystem at `mount_point`. Mounts fusectl if that is necessary.
    pub(crate) fn of(mount_point: &Path) -> io::Result<Self> {
        let number = minor(std::fs::metadata(mount_point)?.dev());
        let path = format!("{CONTROL}/{number}/abort");
        let open = || File::options().write(true).open(&path);
        let abort = open().or_else(|_| {
            mount("fusectl", CONTROL, "fusectl", MountFlags::empty(), None)?;
            open()
        })?;
        Ok(Connection { abort })
    }

    /// Ends all requests with an error, and the server's loop. A mount that another process still
    /// uses, for example in another mount namespace, fails each further request. Does nothing if
    /// the connection has ended.
    pub(crate) fn abort(&self) {
        // The kernel accepts every write.
        let _ = (&self.abort).write_all(b"1");
    }
}
