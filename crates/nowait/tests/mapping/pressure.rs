//! Memory is short: a control group has room for half of the file. Resident windows cause no major page
//! faults, and an ordinary mapping does.
#![allow(unsafe_code, reason = "mmap(2) of a file that does not change")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use nowait::File;
use nowait::mapping::BudgetOptions;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use slowdisk::Filesystem;

use crate::common::cache::evict;
use crate::common::children::{in_child_by, role, this_program};
use crate::common::files::{byte_at, pattern};
use crate::common::limit::Limit;
use crate::common::mounts::mounted;
use crate::common::wait::wait_until;
use crate::mapped;

const MIB: u64 = 1 << 20;
const LEN: u64 = 96 * MIB;
const RESIDENT: u64 = 16 * MIB;

/// A control group with a memory limit, in version 1 or 2. It is removed when it is dropped.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Group> {
        let of_one = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = match of_one.join("memory.limit_in_bytes").exists() {
            true => (of_one, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let path = root.join(format!("nowait-mapping-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Group(path);
        fs::write(group.0.join(file), limit.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may count the process for a moment after it has ended.
        wait_until("the group is removed", || fs::remove_dir(&self.0).is_ok());
    }
}

/// The major page faults of this thread.
fn faults() -> i64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    fields[10].parse().unwrap()
}

/// Reads one byte of each page, again and again, while the rest of the file goes through the page cache.
fn read(bytes: &[u8], rest: &fs::File) -> i64 {
    let mut major = 0;
    for _ in 0..3 {
        let mut buffer = vec![0; MIB as usize];
        for at in (RESIDENT..LEN).step_by(buffer.len()) {
            rest.read_exact_at(&mut buffer, at).unwrap();
        }
        let before = faults();
        for at in (0..bytes.len()).step_by(4096) {
            assert_eq!(bytes[at], byte_at(at as u64));
        }
        major += faults() - before;
    }
    major
}

#[test]
fn resident_windows_cause_no_major_page_faults() {
    let _limit = Limit::new("memory is short".into());
    if let Some(path) = role() {
        let path = Path::new(&path);
        let rest = fs::File::open(path).unwrap();
        let budget = BudgetOptions::new();
        let file = File::blocking_open(path).unwrap();
        let half = budget.build().unwrap().limit();
        assert!(half <= LEN / 4, "the limit of the group counts: {half}");
        let budget = budget.limit(RESIDENT).build().unwrap();
        let mapping = mapped(&file, &budget);
        let resident = mapping.blocking_load(0..RESIDENT).unwrap();
        // SAFETY: the file does not change.
        let ordinary = unsafe {
            let (access, flags) = (ProtFlags::READ, MapFlags::SHARED);
            let at = mmap(null_mut(), LEN as usize, access, flags, &rest, 0).unwrap();
            madvise(at, LEN as usize, Advice::Random).unwrap();
            std::slice::from_raw_parts(at.cast::<u8>(), LEN as usize)
        };
        let ours = read(&resident, &rest);
        let ordinary = read(&ordinary[..LEN as usize], &rest);
        eprintln!("major page faults: {ours}, of an ordinary mapping {ordinary}");
        assert_eq!(ours, 0);
        assert!(ordinary > 1000);
        return;
    }
    let mount = mounted!(Filesystem::Ext4);
    let Some(group) = Group::new(LEN / 2) else {
        return slowdisk::skip_or_fail("a cgroup with a memory controller cannot be made");
    };
    let path = mount.path().join("file");
    fs::write(&path, pattern(0, LEN as usize)).unwrap();
    evict(&path);
    let mut shell = std::process::Command::new("sh");
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    shell.args(["-c", script]).arg(&group.0).arg(this_program());
    in_child_by(shell, path.to_str().unwrap());
}
