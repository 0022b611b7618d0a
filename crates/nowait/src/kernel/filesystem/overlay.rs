//! The effects of open(2) on an overlayfs.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags};

/// Returns true if the overlayfs of this open file finds a regular file in its layers when the path is resolved,
/// and never when the file is opened.
///
/// Data-only layers (Linux 6.5) are searched when a file is opened, and with the option `verity` the digest of the
/// file is read then. Both are options of the mount: see proc_pid_mountinfo(5).
pub(super) fn opens_layers_at_once(fd: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(stat) = rustix::fs::statx(fd, c"", flags, StatxFlags::MNT_ID) else {
        return false;
    };
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else {
        return false;
    };
    let options = options_of(&mounts, stat.stx_mnt_id);
    options.is_some_and(finds_files_on_lookup)
}

/// The options of the filesystem of the mount with this ID.
fn options_of(mounts: &[u8], id: u64) -> Option<&[u8]> {
    let id = id.to_string();
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        // 32 24 0:28 root point options [tags] - type source options
        let mut words = line.split(|byte| *byte == b' ');
        words.next().filter(|word| *word == id.as_bytes())?;
        words.by_ref().find(|word| *word == b"-")?;
        words.nth(2)
    })
}

/// Also false if the name of a layer looks like one of these options.
fn finds_files_on_lookup(options: &[u8]) -> bool {
    let has = |option: &[u8]| options.windows(option.len()).any(|part| part == option);
    // `lowerdir=a::data`, and the option of fsconfig(2).
    !has(b"::") && !has(b"datadir+=") && !has(b"verity=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_only_layers_and_digests_are_found_in_the_options() {
        let mounts = b"28 1 0:23 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/u,workdir=/w\n\
                       29 28 0:24 / /mnt rw shared:1 - overlay none rw,lowerdir=/a::/data,metacopy=on\n\
                       30 28 0:25 / /c rw - overlay composefs:a ro,lowerdir+=/a,datadir+=/data,verity=require\n";
        let at_once = |id| options_of(mounts, id).map(finds_files_on_lookup);
        assert_eq!(at_once(28), Some(true));
        assert_eq!(at_once(29), Some(false));
        assert_eq!(at_once(30), Some(false));
        assert_eq!(at_once(2), None);
    }
}
