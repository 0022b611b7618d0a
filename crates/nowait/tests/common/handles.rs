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
