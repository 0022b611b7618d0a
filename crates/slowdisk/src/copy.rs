//! Copies of programs that a test runs.

use std::io;
use std::path::Path;
use std::process::Command;

/// Copies a program that is to be run. cp(1) makes the copy: if this process wrote the file, a
/// child that another test starts at that moment would inherit the descriptor, and execve(2) would
/// fail with ETXTBSY.
///
/// # Errors
/// If cp(1) fails.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let status = Command::new("cp").arg("--").arg(from).arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "cp {} {}: {status}",
            from.display(),
            to.display()
        ))),
    }
}
