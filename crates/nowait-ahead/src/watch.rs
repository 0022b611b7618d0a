//! The events and counts that the library sends.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nowait_ahead_channel::{
    Channel, Kind, LEARN_VARIABLE, Listening, Place, SEEK, SLOW, SURVEY_VARIABLE, SWITCH, VARIABLE,
};

use crate::learn;
use crate::named::Named;
use crate::open_files;
use crate::survey;
use crate::survey_events;
use crate::system_calls;
use crate::thread::thread;

static CHANNEL: OnceLock<Channel> = OnceLock::new();

/// Attaches to the channels of the environment.
pub fn attach() {
    let off = variable(SWITCH).is_some_and(|value| value == b"off");
    if off {
        return;
    }
    if let Some(channel) = attached(VARIABLE) {
        let _ = CHANNEL.set(channel);
    }
    let (surveys, learns) = (attached(SURVEY_VARIABLE), attached(LEARN_VARIABLE));
    if surveys.is_some() || learns.is_some() {
        system_calls::look();
    }
    if let Some(channel) = surveys {
        survey::begin(channel);
    }
    if let Some(channel) = learns {
        learn::begin(channel);
    }
}

/// The channel that a variable of the environment names.
fn attached(name: &str) -> Option<Channel> {
    let (path, key) = variable(name).and_then(channel)?;
    Channel::attach(path, key).ok()
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
    // SAFETY: the name ends with a zero. The library is being loaded, and no other thread changes
    // the environment.
    let value = unsafe { libc::getenv(bytes.as_ptr().cast()) };
    // SAFETY: a value of the environment is a C string, which stays while the program starts.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// The channel, if `nowait run` listens to these events.
fn listening(to: Listening) -> Option<&'static Channel> {
    CHANNEL.get().filter(|channel| channel.is_listening(to))
}

fn tell(channel: &Channel, kind: Kind, place: Place<'_>, id: (u64, u64), time: u64) {
    count(channel);
    channel.tell(kind, thread(), place, id, time);
}

/// The time, if `nowait run` listens. 0 if it does not, or if the time is not known yet.
pub fn now() -> u64 {
    let channel = listening(Listening::Directories);
    channel.and_then(Channel::now).unwrap_or_default()
}

/// The number of calls that are added to the counts of the channel together.
const CALLS_PER_COUNT: u32 = 32;
/// The calls that are not in the counts of the channel yet, and their nanoseconds. Threads may lose
/// some of each other's calls.
static CALLS: AtomicU32 = AtomicU32::new(0);
static TOOK: AtomicU64 = AtomicU64::new(0);

/// Carries out a call of stat(2), and counts it.
pub fn stat<R: Copy + Into<c_long>>(call: impl FnOnce() -> R, file: Named) -> R {
    let result = timed_stat(call, file);
    looked_up(result.into() < 0, file);
    result
}

/// The program has looked up a path with a call that has succeeded or failed. The path is read if the
/// kernel has read it before: it may have refused the address, or the length.
#[inline(never)]
pub fn looked_up(has_failed: bool, file: Named) {
    if !has_failed || system_calls::errno() == libc::ENOENT {
        // SAFETY: the call has just read this path.
        unsafe { learn::looked_up(file) };
    }
}

fn timed_stat<R: Copy + Into<c_long>>(call: impl FnOnce() -> R, file: Named) -> R {
    let Some(channel) = listening(Listening::Directories) else {
        return call();
    };
    let began = channel.now();
    let result = call();
    let took = since(channel, began);
    let calls = CALLS.load(Ordering::Relaxed) + 1;
    CALLS.store(calls, Ordering::Relaxed);
    TOOK.store(TOOK.load(Ordering::Relaxed) + took, Ordering::Relaxed);
    let is_slow = Duration::from_nanos(took) >= SLOW;
    if is_slow || calls >= CALLS_PER_COUNT {
        count(channel);
    }
    if is_slow && result.into() == 0 {
        // SAFETY: the call has succeeded with this path.
        unsafe { slow(channel, file, took) };
    }
    result
}

/// The program unmounts a filesystem. The call is repeated if it is busy and `nowait run` may have had files open there.
pub fn unmounts(call: impl Fn() -> c_int, path: *const c_char) -> c_int {
    let result = survey_events::unmounts(&call);
    let is_busy = result != 0 && system_calls::errno() == libc::EBUSY;
    // SAFETY: the call has just looked up the path.
    if is_busy && unsafe { let_go(path) } {
        return survey_events::unmounts(call);
    }
    result
}

/// Asks `nowait run` to close the files that it reads on a mount, and waits for that. Returns false if `nowait run` does not answer.
///
/// # Safety
/// A system call has just accepted the path.
unsafe fn let_go(mount: *const c_char) -> bool {
    static IS_SILENT: AtomicBool = AtomicBool::new(false);
    const TIMEOUT: u64 = 2_000_000_000;
    let Some(channel) = listening(Listening::Directories) else {
        return false;
    };
    let Some(begin) = channel.now().filter(|_| !IS_SILENT.load(Ordering::Relaxed)) else {
        return false;
    };
    let mount = Named::here(mount);
    // SAFETY: the caller's promise.
    let place = unsafe { mount.place() };
    let event = channel.tell_unmounting(thread(), place.map_or(b"", |place| place.path));
    while !channel.is_handled(event) {
        if since(channel, Some(begin)) > TIMEOUT {
            IS_SILENT.store(true, Ordering::Relaxed);
            return false;
        }
        survey_events::pause();
    }
    true
}

/// Adds the calls to the counts of the channel.
fn count(channel: &Channel) {
    let calls = CALLS.swap(0, Ordering::Relaxed);
    let took = TOOK.swap(0, Ordering::Relaxed);
    if calls > 0 {
        channel.count(calls.into(), took);
    }
}

/// The process ends. Counts its last calls.
pub fn end() {
    learn::ends();
    if let Some(channel) = listening(Listening::Directories) {
        count(channel);
    }
}

/// The nanoseconds since a call began. 0 if they are not known.
fn since(channel: &Channel, began: Option<u64>) -> u64 {
    match (began, channel.now()) {
        (Some(began), Some(now)) => now.saturating_sub(began),
        _ => 0,
    }
}

/// Tells of the directory in which a call took so many nanoseconds.
///
/// # Safety
/// A system call has just accepted the path.
unsafe fn slow(channel: &Channel, file: Named, took: u64) {
    let kind = match Duration::from_nanos(took) >= SEEK {
        true => Kind::VerySlow,
        false => Kind::Slow,
    };
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { file.directory() } {
        tell(channel, kind, place, (0, 0), now());
    }
}

/// Carries out a call that opens a file. Tells of one that is read if `nowait run` reads data
/// ahead, and surveys it if `nowait run` keeps the page cache.
#[inline(always)]
pub fn open(call: impl FnOnce() -> c_int, file: Named, flags: c_int) -> c_int {
    let shared = open_files::shared();
    let fd = timed_open(call, file, flags);
    // O_TMPFILE has the bit of O_DIRECTORY.
    let is_file = flags & (libc::O_DIRECTORY | libc::O_PATH) == 0
        || flags & libc::O_TMPFILE == libc::O_TMPFILE;
    // These are no part of this generic function: each of them needs its stack for itself.
    if fd >= 0 && is_file {
        // SAFETY: the call has succeeded with this path.
        unsafe { survey::opened(fd, file, flags, shared) };
        learn::opened(fd, flags);
    } else if fd >= 0 {
        learn::opened_directory(fd);
    } else {
        looked_up(true, file);
    }
    fd
}

#[inline(never)]
fn timed_open(call: impl FnOnce() -> c_int, file: Named, flags: c_int) -> c_int {
    const OTHER: c_int = libc::O_WRONLY | libc::O_DIRECTORY | libc::O_PATH;
    let Some(channel) = listening(Listening::Files).filter(|_| flags & OTHER == 0) else {
        return call();
    };
    let began = channel.now();
    let fd = call();
    let took = since(channel, began);
    if fd >= 0
        // SAFETY: the call has succeeded with this path.
        && let Some(place) = (unsafe { file.place() })
    {
        tell(channel, Kind::File, place, (0, 0), took);
    }
    fd
}

/// Tells of a call of stat(2) within the C library.
pub fn inner_stat() {
    if let Some(channel) = listening(Listening::Directories) {
        channel.count(1, 0);
    }
}

/// Tells of a directory that the program lists.
pub fn listed(kind: Kind, fd: c_int, inode: u64, time: u64) {
    learn::listed(fd);
    if let Some(channel) = listening(Listening::Directories) {
        tell(channel, kind, Place { fd, path: b"" }, (0, inode), time);
    }
}

/// Tells of a directory that a tree's walk within the C library has entered.
pub fn entered(id: (u64, u64)) {
    if let Some(channel) = listening(Listening::Directories) {
        tell(channel, Kind::Entered, Place::NONE, id, now());
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
    learn::lists(path);
    if let Some(channel) = listening(Listening::Directories) {
        tell(channel, kind, Place { fd: -1, path }, (0, 0), now());
    }
}
