//! Disks on which two that read in different orders are slower than one.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nowait::Handle;

/// The wait for a request from which a disk that says it rotates does so. Most disks of virtual machines say that they rotate.
const SEEK: Duration = Duration::from_millis(2);

/// Returns true if a directory is on a disk that seeks. `wait` returns the time of a request.
pub fn seeks(directory: &OwnedFd, wait: impl FnOnce() -> Duration) -> bool {
    let handle = directory.try_clone().map(Handle::new);
    matches!(handle, Ok(Ok(it)) if it.filesystem().rotating() == Some(true)) && wait() >= SEEK
}
