//! Open files for operations.

use std::os::fd::OwnedFd;
use std::path::Path;

use nowait::Handle;

/// Opens a file for operations, read-only.
pub fn handle(path: &Path) -> Handle {
    Handle::new(std::fs::File::open(path).unwrap()).unwrap()
}

/// Opens a file for operations, for reading and writing.
pub fn handle_rw(path: &Path) -> Handle {
    let file = std::fs::File::options().read(true).write(true).open(path);
    Handle::new(file.unwrap()).unwrap()
}

/// A pipe: its read end and its write end.
pub fn pipe() -> (Handle, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Handle::new(reader).unwrap(), writer.into())
}

/// A terminal, and the end of the program that shows it.
pub fn terminal() -> (Handle, OwnedFd) {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let other_end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&other_end).unwrap();
    unlockpt(&other_end).unwrap();
    let name = ptsname(&other_end, Vec::new()).unwrap();
    let terminal = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (Handle::new(terminal).unwrap(), other_end)
}
