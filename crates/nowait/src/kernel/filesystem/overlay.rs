//! The effects of open(2) on an overlayfs.

use std::os::fd::BorrowedFd;

use rustix::fs::{StatxFlags, major, minor};

use crate::sys::stat::statx;

/// Returns true if the overlayfs of this open file opens regular files without waiting for more than the filesystem of the
/// file. `device` is the `st_dev` of the file.
///
/// - All layers are on one filesystem: then the files have the device of the mount. Otherwise a file that was copied up has
///   one that stands for its lower layer, whose server fstat(2) may ask.
/// - A file is found in its layers when the path is resolved, and not when it is opened. Data-only layers (Linux 6.5) are
///   searched then, and with the option `verity` the digest of the file is read. With `metacopy` the attributes are those of
///   another file than the data.
///
/// The options are those of the mount: see proc_pid_mountinfo(5). Defaults of the module are not among them.
pub(super) fn opens_at_once(fd: BorrowedFd<'_>, device: u64) -> bool {
    let Ok(stat) = statx(fd, StatxFlags::MNT_ID) else {
        return false;
    };
    let Ok(mounts) = std::fs::read("/proc/self/mountinfo") else {
        return false;
    };
    let device = format!("{}:{}", major(device), minor(device));
    let options = options_of(&mounts, stat.stx_mnt_id, &device);
    options.is_some_and(finds_files_on_lookup) && !has_defaults()
}

/// The options of the filesystem of the mount with this ID, if it has this device.
fn options_of<'a>(mounts: &'a [u8], id: u64, device: &str) -> Option<&'a [u8]> {
    let id = id.to_string();
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        // 32 24 0:28 root point options [tags] - type source options
        let mut words = line.split(|byte| *byte == b' ');
        words.next().filter(|word| *word == id.as_bytes())?;
        words.nth(1).filter(|word| *word == device.as_bytes())?;
        words.by_ref().find(|word| *word == b"-")?;
        words.nth(2)
    })
}

/// Also false if the name of a layer looks like one of these options.
fn finds_files_on_lookup(options: &[u8]) -> bool {
    let has = |option: &[u8]| options.windows(option.len()).any(|part| part == option);
    // `lowerdir=a::data`, and the option of fsconfig(2). With `xino`, all files have the device of the mount.
    let refused: [&[u8]; 6] = [
        b"::",
        b"datadir+=",
        b"verity=",
        b"metacopy=on",
        b"xino=on",
        b"xino=auto",
    ];
    !refused.into_iter().any(has)
}

/// Returns true if the module has `metacopy` or `xino` by default, or if that is not known.
fn has_defaults() -> bool {
    ["metacopy", "xino_auto"].iter().any(|name| {
        let path = format!("/sys/module/overlay/parameters/{name}");
        std::fs::read(path).map_or(true, |value| !value.starts_with(b"N"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_ask_other_files_are_found_by_their_devices_and_options() {
        let mounts =
            b"28 1 0:23 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/u,workdir=/w\n\
              29 28 0:24 / /mnt rw shared:1 - overlay none rw,lowerdir=/a::/data\n\
              30 28 0:25 / /c rw - overlay composefs:a ro,lowerdir+=/a,datadir+=/data,verity=require\n\
              31 28 0:26 / /d rw - overlay none rw,lowerdir=/a,metacopy=on\n\
              32 28 0:27 / /e rw - overlay none rw,lowerdir=/a,xino=on\n\
              33 28 0:28 / /f rw - overlay none rw,lowerdir=/a,xino=off\n";
        let at_once = |id, device| options_of(mounts, id, device).map(finds_files_on_lookup);
        assert_eq!(at_once(28, "0:23"), Some(true));
        assert_eq!(at_once(28, "0:99"), None, "the device of a lower layer");
        assert_eq!(at_once(29, "0:24"), Some(false));
        assert_eq!(at_once(30, "0:25"), Some(false));
        assert_eq!(at_once(31, "0:26"), Some(false));
        assert_eq!(at_once(32, "0:27"), Some(false));
        assert_eq!(at_once(33, "0:28"), Some(true));
        assert_eq!(at_once(2, "0:23"), None);
    }
}
