//! The filter of system calls of this process (seccomp(2)).

use rustix::fs::{CWD, OFlags};
use rustix::io::read;

use crate::memory::Opened;

/// Returns false if this process is known to have no filter. The calls are those by which ld.so(8)
/// loads a library, so a filter with which the program can start allows them.
pub fn has_filter() -> bool {
    // The line comes after those of signals and capabilities, and before long lists of processors.
    let mut status = [0; 4096];
    let mut len = 0;
    let Ok(file) = Opened::at(CWD, "/proc/self/status", OFlags::RDONLY) else {
        return true;
    };
    while len < status.len() {
        match read(&file, &mut status[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(_) => return true,
        }
    }
    !status[..len]
        .split(|&byte| byte == b'\n')
        .any(|line| line == b"Seccomp:\t0")
}
