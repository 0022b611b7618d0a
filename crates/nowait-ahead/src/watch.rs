//! The events and counts that the library sends.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nowait_ahead_channel::{Channel, Kind, SWITCH, VARIABLE};
use rustix::time::{ClockId, clock_gettime};

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

/// The channel, if `nowait run` listens.
fn listening() -> Option<&'static Channel> {
    CHANNEL.get().filter(|channel| channel.is_listening())
}

fn pid() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// A call is timed after so many that were not.
const EVERY: u32 = 16;
/// The number of calls that are timed at the start of a process, and after a slow one.
const EAGER: u32 = 32;
/// A call that took longer has waited for the disk, or has made an inode from a block. A cached one takes 1 or 2 µs.
const SLOW: u64 = 12_000;

/// The calls since the last that was timed. Threads may lose some of each other's.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// The number of calls that remain to be timed.
static TO_TIME: AtomicU32 = AtomicU32::new(EAGER);

/// Carries out a call of stat(2), and counts it.
pub fn stat<R>(call: impl FnOnce() -> R) -> R {
    let Some(channel) = listening() else {
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
    channel.count(u64::from(calls), 1, took);
    if took >= SLOW {
        TO_TIME.store(EAGER, Ordering::Relaxed);
        channel.tell(Kind::Slow, pid(), -1, (0, 0), b"");
    } else {
        TO_TIME.store(to_time.saturating_sub(1), Ordering::Relaxed);
    }
    result
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Tells of a call of stat(2) within the C library.
pub fn inner_stat() {
    if let Some(channel) = listening() {
        channel.count(1, 0, 0);
    }
}

/// Tells of a directory that was opened.
pub fn opened(fd: c_int) {
    let Some(channel) = listening() else { return };
    if fd < 0 {
        return;
    }
    // SAFETY: the C library has just returned this descriptor. If another thread has closed it since, fstat(2) fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Ok(stat) = rustix::fs::fstat(fd) {
        use std::os::fd::AsRawFd;
        channel.tell(
            Kind::Opened,
            pid(),
            fd.as_raw_fd(),
            (stat.st_dev, stat.st_ino),
            b"",
        );
    }
}

/// Tells of a directory that a tree's walk within the C library has entered.
pub fn entered(id: (u64, u64)) {
    if let Some(channel) = listening() {
        channel.tell(Kind::Entered, pid(), -1, id, b"");
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
    if let Some(channel) = listening() {
        channel.tell(kind, pid(), -1, (0, 0), path);
    }
}
