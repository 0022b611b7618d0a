//! The cached pages of a file, as mincore(2) and cachestat(2) report them.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::{null_mut, without_provenance_mut};

use crate::limit::wait_until;

/// True for each page of a file that is resident: mincore(2). The process must own the file, or be root: others are
/// told that all pages are resident.
///
/// # Panics
/// If the file cannot be opened or mapped.
pub fn resident(path: &Path) -> Vec<bool> {
    let file = File::open(path).expect("a file");
    let len = file.metadata().expect("fstat").len() as usize;
    if len == 0 {
        return Vec::new();
    }
    let mut pages = vec![0u8; len.div_ceil(rustix::param::page_size())];
    // SAFETY: a new mapping, which is removed before the file is closed. `pages` has a byte for each of its pages.
    unsafe {
        let kind = libc::MAP_SHARED;
        let map = libc::mmap(null_mut(), len, libc::PROT_READ, kind, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let asked = libc::mincore(map, len, pages.as_mut_ptr());
        libc::munmap(map, len);
        assert_eq!(asked, 0, "mincore(2)");
    }
    pages.iter().map(|page| page & 1 == 1).collect()
}

/// The number of pages of a file that the kernel has reclaimed, and that were not read since: cachestat(2). Pages
/// that fadvise(2) has evicted are not among them. `None` before Linux 6.5.
///
/// # Panics
/// If the file cannot be opened.
pub fn reclaimed(path: &Path) -> Option<u64> {
    reclaimed_within(path, 0..u64::MAX)
}

/// Returns true if the kernel has reclaimed each of these pages of a file. They are numbered from 0. Before Linux 6.5 the
/// kernel is asked if it has reclaimed any page since it started.
///
/// The kernel forgets that it has reclaimed a page if the page is read again. A few pages may have been reclaimed before a
/// program has looked at the file, if as many were reclaimed of all files since `since`, a result of [`all_reclaimed`].
///
/// # Panics
/// If the file cannot be opened.
pub fn are_reclaimed(path: &Path, pages: impl IntoIterator<Item = u64>, since: u64) -> bool {
    const FEW: u64 = 16;
    let page = rustix::param::page_size() as u64;
    let bytes = |number: u64| number * page..(number + 1) * page;
    let is_reclaimed = |number| match reclaimed_within(path, bytes(number)) {
        Some(count) => count == 1,
        None => all_reclaimed() > 0,
    };
    let unproven = pages
        .into_iter()
        .filter(|page| !is_reclaimed(*page))
        .count() as u64;
    unproven == 0 || unproven <= FEW && all_reclaimed().saturating_sub(since) >= unproven
}

/// The file of a layer whose pages those of a file on overlayfs are, on which cachestat(2) answers 0. Any other file is
/// returned.
fn layer(path: &Path) -> PathBuf {
    const OVERLAYFS: u64 = 0x794c_7630;
    let is_overlay = |path| rustix::fs::statfs(path).is_ok_and(|it| it.f_type as u64 == OVERLAYFS);
    if !is_overlay(path) {
        return path.into();
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    // `36 35 98:0 / /mnt rw - overlay overlay rw,lowerdir=/lower,upperdir=/upper,workdir=/work`
    let layers = mounts.lines().rev().find_map(|line| {
        let below = path.strip_prefix(line.split(' ').nth(4)?).ok()?;
        let (_, options) = line.split_once(" - overlay ")?;
        let options = options.split([' ', ',']);
        let layers = options.filter_map(|it| {
            it.strip_prefix("upperdir=")
                .or(it.strip_prefix("lowerdir="))
        });
        Some(
            layers
                .map(|layer| Path::new(layer).join(below))
                .collect::<Vec<_>>(),
        )
    });
    let layers = layers.unwrap_or_default();
    // The upper layer comes last.
    let found = layers.into_iter().rev().find(|file| file.exists());
    found.unwrap_or_else(|| path.into())
}

fn reclaimed_within(path: &Path, bytes: Range<u64>) -> Option<u64> {
    // These are not in the libc crate for all machines. The number is that of all machines.
    const CACHESTAT: libc::c_long = 451;
    let file = File::open(layer(path)).expect("a file");
    // The range: its start, and its length, where 0 is up to the end.
    let range = match bytes.end {
        u64::MAX => [bytes.start, 0],
        end => [bytes.start, end - bytes.start],
    };
    // `struct cachestat`: cached, dirty, under writeback, evicted, recently evicted.
    let mut counts = [0u64; 5];
    // SAFETY: the call reads the range and writes the counts.
    let asked = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0,
        )
    };
    (asked == 0).then_some(counts[3])
}

/// The number of pages of all files that the kernel has reclaimed since it started. DAMON answers within half a second.
///
/// # Panics
/// If DAMON does not answer.
pub fn all_reclaimed() -> u64 {
    update_damon_counts();
    reclaimed_at_least()
}

/// The same without a question to DAMON: its pages are counted up to the last question of any process.
pub(crate) fn reclaimed_at_least() -> u64 {
    let counts = fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    let mut lines = counts.lines();
    let reclaimed = lines.find_map(|line| line.strip_prefix("pgsteal_file ")?.parse().ok());
    reclaimed.unwrap_or(0) + reclaimed_by_damon()
}

/// The first thread of DAMON. The directory does not exist if DAMON does not run; another user cannot write there.
const DAMON: &str = "/sys/kernel/mm/damon/admin/kdamonds/0";

/// Asks DAMON to update its counts. It answers one process at a time, and others get EBUSY.
fn update_damon_counts() {
    let state = Path::new(DAMON).join("state");
    let ask = || fs::write(&state, "update_schemes_stats");
    let is_busy = |asked: &io::Result<()>| {
        let error = asked.as_ref().err().and_then(io::Error::raw_os_error);
        error == Some(libc::EBUSY)
    };
    wait_until("DAMON answers", || !is_busy(&ask()));
}

/// The number of pages that DAMON has reclaimed, which the counts of the virtual memory do not include. 0 if the process is not
/// root, or if DAMON does not run.
fn reclaimed_by_damon() -> u64 {
    let schemes = fs::read_dir(Path::new(DAMON).join("contexts/0/schemes"));
    let bytes = schemes.into_iter().flatten().flatten().map(|scheme| {
        let count = fs::read_to_string(scheme.path().join("stats/sz_applied"));
        count
            .ok()
            .and_then(|count| count.trim().parse::<u64>().ok())
            .unwrap_or(0)
    });
    bytes.sum::<u64>() / rustix::param::page_size() as u64
}

/// Pages that are locked in memory: the kernel does not reclaim them, and nothing else can evict them.
pub struct Locked {
    address: usize,
    len: usize,
}

impl Locked {
    /// Locks the cached pages of these bytes of a file, the first of which is that of a page: mlock(2).
    ///
    /// # Panics
    /// If the memory cannot be mapped or locked (RLIMIT_MEMLOCK).
    pub fn new(path: &Path, parts: impl IntoIterator<Item = Range<u64>>) -> Locked {
        let file = File::open(path).expect("a file");
        let len = file.metadata().expect("fstat").len() as usize;
        // SAFETY: a new mapping of a file that is only read.
        let map = unsafe {
            let (kind, fd) = (libc::MAP_SHARED, file.as_raw_fd());
            libc::mmap(null_mut(), len, libc::PROT_READ, kind, fd, 0)
        };
        assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let locked = Locked {
            address: map.addr(),
            len,
        };
        // SAFETY: the advice changes no contents. Otherwise pages around those that are locked would be read.
        unsafe { libc::madvise(map, len, libc::MADV_RANDOM) };
        for part in parts {
            assert!(part.end <= len.next_multiple_of(4096) as u64);
            // SAFETY: a part of the mapping from above.
            let done = unsafe {
                libc::mlock(
                    map.byte_add(part.start as usize),
                    (part.end - part.start) as usize,
                )
            };
            assert_eq!(done, 0, "mlock(2): {}", io::Error::last_os_error());
        }
        locked
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(without_provenance_mut(self.address), self.len) };
    }
}
