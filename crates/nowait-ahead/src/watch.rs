//! The events and counts that the library sends.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use nowait_ahead_channel::{
    Channel, Kind, LARGE, Listening, PATH_MAX, Place, SEEK, SWITCH, VARIABLE,
};
use rustix::fs::{AtFlags, CWD, FileType, fstat, statat};

static CHANNEL: OnceLock<Channel> = OnceLock::new();

/// Runs before main(), and before threads.
#[used]
#[unsafe(link_section = ".init_array")]
static ATTACH: extern "C" fn() = attach;

extern "C" fn attach() {
    let off = variable(SWITCH).is_some_and(|value| value == b"off");
    if off {
        return;
    }
    let Some((path, key)) = variable(VARIABLE).and_then(channel) else {
        return;
    };
    if let Ok(channel) = Channel::attach(path, key) {
        let _ = CHANNEL.set(channel);
    }
}

/// The path and the key of a channel.
fn channel(value: &'static [u8]) -> Option<(&'static Path, u64)> {
    let colon = value.iter().rposition(|&byte| byte == b':')?;
    let key = std::str::from_utf8(&value[colon + 1..]).ok()?;
    let path = Path::new(std::ffi::OsStr::from_bytes(&value[..colon]));
    Some((path, u64::from_str_radix(key, 16).ok()?))
}

fn variable(name: &str) -> Option<&'static [u8]> {
    let mut bytes = [0; 64];
    bytes
        .get_mut(..name.len())?
        .copy_from_slice(name.as_bytes());
    // SAFETY: the name ends with a zero. The library is being loaded, and no other thread changes the environment.
    let value = unsafe { libc::getenv(bytes.as_ptr().cast()) };
    // SAFETY: a value of the environment is a C string, which stays while the program starts.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The channel, if `nowait run` listens to these events.
fn listening(to: Listening) -> Option<&'static Channel> {
    CHANNEL.get().filter(|channel| channel.is_listening(to))
}

fn tell(channel: &Channel, kind: Kind, place: Place<'_>, id: (u64, u64)) {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    channel.tell(kind, pid.cast_unsigned(), place, id, now());
}

/// The time of CLOCK_MONOTONIC in nanoseconds.
fn now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the argument is a timespec. The call does not fail for this clock, and so leaves errno alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A call is timed after so many that were not.
const EVERY: u32 = 32;
/// The number of calls that are timed at the start of a process, and after one that was slow or not timed and has read from a
/// disk.
const EAGER: u32 = 32;
/// A call that took longer has waited for the disk if its thread has slept. A cached one takes 1 or 2 µs, and longer if another
/// program had the processor meanwhile.
const SLOW: u64 = 12_000;

/// The calls since the last that was timed. Threads may lose some of each other's.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The number of calls that remain to be timed.
static TO_TIME: AtomicU32 = AtomicU32::new(EAGER);
/// The number of times that a thread had slept at its last long call.
static SLEPT: AtomicI64 = AtomicI64::new(0);
/// The blocks that a thread had read from disks when a call was last timed, and when a directory was last opened.
static READ: AtomicI64 = AtomicI64::new(0);
static READ_BEFORE_OPENING: AtomicI64 = AtomicI64::new(0);

/// The file of a call, as the program names it.
#[derive(Clone, Copy)]
pub struct Named {
    /// The directory to which a relative path belongs, as in openat(2).
    pub dir: c_int,
    /// A path that the system call accepts.
    pub path: *const c_char,
}

impl Named {
    /// A path relative to the working directory.
    pub fn here(path: *const c_char) -> Named {
        let dir = libc::AT_FDCWD;
        Named { dir, path }
    }

    /// The directory of the file. `None` if the path does not name the file.
    ///
    /// # Safety
    /// A system call has just accepted the path.
    unsafe fn directory(&self) -> Option<Place<'_>> {
        if self.path.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(self.path) }.to_bytes();
        let name = path.iter().rposition(|&byte| byte == b'/');
        let path = &path[..name.map_or(0, |slash| slash.max(1))];
        let fd = if self.dir >= 0 && !path.starts_with(b"/") {
            self.dir
        } else {
            -1
        };
        Some(Place { fd, path })
    }
}

/// Carries out a call of stat(2), and counts it.
pub fn stat<R: Copy + Into<c_long>>(call: impl FnOnce() -> R, file: Named) -> R {
    let Some(channel) = listening(Listening::Directories) else {
        return call();
    };
    let calls = CALLS.load(Ordering::Relaxed) + 1;
    let to_time = TO_TIME.load(Ordering::Relaxed);
    if calls < EVERY && to_time == 0 {
        CALLS.store(calls, Ordering::Relaxed);
        return call();
    }
    CALLS.store(0, Ordering::Relaxed);
    let began = now();
    let result = call();
    let took = now().saturating_sub(began);
    let is_slow = took >= SLOW && has_slept();
    // The call stands for those before it that were not timed. Slow ones come in a row, which began among them.
    let alike = if is_slow { calls.div_ceil(2) } else { calls };
    channel.count(calls.into(), 1, took * u64::from(alike));
    if is_slow && result.into() == 0 {
        // SAFETY: the call has succeeded with this path.
        unsafe { slow(channel, file, took) };
    }
    let to_time = match is_slow || has_read(&READ) {
        true => EAGER,
        false => to_time.saturating_sub(1),
    };
    TO_TIME.store(to_time, Ordering::Relaxed);
    result
}

/// Returns true if this thread has slept since its last long call: for the disk, for a server, or elsewhere in the program.
fn has_slept() -> bool {
    let sleeps = usage().ru_nvcsw;
    SLEPT.swap(sleeps, Ordering::Relaxed) != sleeps
}

/// Returns true if this thread has read names, inodes or data from a disk since `before` was looked at.
fn has_read(before: &AtomicI64) -> bool {
    let reads = usage().ru_inblock;
    before.swap(reads, Ordering::Relaxed) != reads
}

/// What this thread has used until now.
fn usage() -> libc::rusage {
    // SAFETY: all bytes zero are a rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the argument is a rusage. The call does not fail for this thread, and so leaves errno alone.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage
}

/// Tells of the directory in which a call waited, and took so many nanoseconds.
///
/// # Safety
/// A system call has just accepted the path.
unsafe fn slow(channel: &Channel, file: Named, took: u64) {
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { file.directory() }) else {
        return;
    };
    let path: &[u8] = if place.path.is_empty() {
        b"."
    } else {
        place.path
    };
    // SAFETY: a system call has just accepted the descriptor.
    let dir = unsafe { directory(place.fd) };
    // An event has no room for a longer path, and rustix would allocate memory for it.
    if path.len() >= PATH_MAX.min(256) {
        return;
    }
    if let Ok(stat) = statat(dir, path, AtFlags::empty()) {
        let kind = match Duration::from_nanos(took) >= SEEK {
            true => Kind::VerySlow,
            false => Kind::Slow,
        };
        tell(channel, kind, place, (stat.st_dev, stat.st_ino));
    }
}

/// # Safety
/// The descriptor is open, or −1 for the working directory.
unsafe fn directory(fd: c_int) -> BorrowedFd<'static> {
    match fd {
        0.. => {
            // SAFETY: the caller's promise.
            unsafe { BorrowedFd::borrow_raw(fd) }
        }
        _ => CWD,
    }
}

/// Carries out a call that opens a file, and tells of a regular file if `nowait run` reads data ahead.
pub fn open(call: impl FnOnce() -> c_int, file: Named) -> c_int {
    let Some(channel) = listening(Listening::Files) else {
        return call();
    };
    let began = now();
    let fd = call();
    let took = now().saturating_sub(began);
    if fd < 0 {
        return fd;
    }
    // SAFETY: the C library has just returned this descriptor. If another thread has closed it since, fstat(2) fails.
    let opened = fstat(unsafe { BorrowedFd::borrow_raw(fd) }.as_fd());
    if let Ok(stat) = opened
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_size > 0
        // SAFETY: the call has succeeded with this path.
        && let Some(place) = (unsafe { file.directory() })
    {
        tell(channel, Kind::File, place, (stat.st_dev, stat.st_ino));
        if took >= SLOW && has_slept() {
            // SAFETY: as above.
            unsafe { slow(channel, file, took) };
        }
    }
    fd
}

/// Tells of a call of stat(2) within the C library.
pub fn inner_stat() {
    if let Some(channel) = listening(Listening::Directories) {
        channel.count(1, 0, 0);
    }
}

/// Tells of a directory that was opened.
pub fn opened(fd: c_int) {
    let Some(channel) = listening(Listening::Directories) else {
        return;
    };
    if fd < 0 {
        return;
    }
    // SAFETY: the C library has just returned this descriptor. If another thread has closed it since, fstat(2) fails.
    if let Ok(stat) = fstat(unsafe { BorrowedFd::borrow_raw(fd) }) {
        let place = Place { fd, path: b"" };
        // The kernel reads the inodes of many small directories at a time. The program then waits for the names alone.
        let kind = match (has_read(&READ_BEFORE_OPENING), stat.st_size >= LARGE) {
            (_, true) => Kind::OpenedLarge,
            (true, false) => Kind::OpenedAfterReading,
            (false, false) => Kind::Opened,
        };
        tell(channel, kind, place, (stat.st_dev, stat.st_ino));
    }
}

/// Tells of a directory that a tree's walk within the C library has entered.
pub fn entered(id: (u64, u64)) {
    if let Some(channel) = listening(Listening::Directories) {
        tell(channel, Kind::Entered, Place::NONE, id);
    }
}

/// Tells of a path that the C library is about to list or walk.
///
/// # Safety
/// `path` is null or a C string.
pub unsafe fn path(kind: Kind, path: *const c_char) {
    if !path.is_null() {
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(path) };
        told(kind, path.to_bytes());
    }
}

/// Tells of a directory that the C library is about to list.
pub fn listing(path: &[u8]) {
    told(Kind::Listing, path);
}

fn told(kind: Kind, path: &[u8]) {
    if let Some(channel) = listening(Listening::Directories) {
        tell(channel, kind, Place { fd: -1, path }, (0, 0));
    }
}
