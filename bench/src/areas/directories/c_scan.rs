//! A scan through the C library's nw_xgetdents.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nowait_capi::{nw_dirent, nw_scan_close, nw_scan_open, nw_scan_options, nw_xgetdents};

use super::said::Said;
use nowait_cli::problem::Problem;

/// Bytes of the buffer for entries.
const ROOM: usize = 64 << 10;

/// Scans a directory with metadata and counts its entries.
pub fn scan(directory: &Path) -> Result<Said, Problem> {
    let failed = |errno: i64| {
        Problem::of(
            directory.display(),
            io::Error::from_raw_os_error(-errno as i32),
        )
    };
    let file = File::open(directory).map_err(|e| Problem::of(directory.display(), e))?;
    let options = nw_scan_options {
        size: size_of::<nw_scan_options>(),
        mask: libc::STATX_BASIC_STATS,
        ..nw_scan_options::default()
    };
    let mut scan = std::ptr::null_mut();
    // SAFETY: the options have their size, and the place is valid.
    let opened = unsafe { nw_scan_open(file.as_raw_fd(), &raw const options, &raw mut scan) };
    if opened < 0 {
        return Err(failed(opened.into()));
    }
    let mut said = Said::default();
    let mut buffer = vec![0_u64; ROOM / 8];
    let result = loop {
        // SAFETY: the scan is open, and the buffer has so many bytes.
        let filled = unsafe { nw_xgetdents(scan, buffer.as_mut_ptr().cast(), ROOM) };
        if filled <= 0 {
            break filled;
        }
        let mut at = 0;
        while at < filled as usize {
            // SAFETY: the buffer has a record here, which is aligned to 8 bytes.
            let entry = unsafe { &*buffer.as_ptr().byte_add(at).cast::<nw_dirent>() };
            said.entries += 1;
            said.failed += u64::from(entry.stat_error != 0);
            at += entry.reclen as usize;
        }
    };
    // SAFETY: the scan is open, and not used again.
    unsafe { nw_scan_close(scan) };
    if result < 0 {
        return Err(failed(result as i64));
    }
    Ok(said)
}
