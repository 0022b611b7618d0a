//! Tells `nowait run --learn` of the parts of files that the program reads or has mapped, the paths that
//! it looks up, and the directories that it lists.
//!
//! The part of a file is known when it is closed: what is before the descriptor's position was read.
//! Reads at other positions are sent at once. Mapped pages are asked for when the process ends or
//! executes another program, by descriptors that are closed before that. `nowait run` asks for those that
//! the program unmaps earlier. All of this needs system calls, so nothing is sent by a process with a
//! filter.

use std::ffi::{c_int, c_long, c_void};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{FILE, off64_t, ssize_t};
use nowait_ahead_channel::{Channel, Kind, Listening, Place, key, used_mappings};
use rustix::fs::CWD;
use rustix::process::getpid;
use rustix::thread::{Timespec, nanosleep};

use crate::named::Named;
use crate::path;
use crate::position::{is_after, position, size};
use crate::system_calls;
use crate::thread::thread;

static CHANNEL: OnceLock<Channel> = OnceLock::new();
/// For each descriptor of a file, 1 more than the position from which the program reads it. 0 for
/// other descriptors.
static FILES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// The number of reads at other positions that this process may still send.
static READS: AtomicU32 = AtomicU32::new(2000);
/// The number of unmapped mappings that this process may still send. For each it waits for 1 or 2
/// ms.
static UNMAPPINGS: AtomicU32 = AtomicU32::new(200);
/// The number of calls of lseek(2) of the program before which the position is still asked for.
static SEEKS: AtomicU32 = AtomicU32::new(20_000);
/// The addresses and the lengths of the files that the program has mapped last.
static MAPPINGS: [[AtomicUsize; 2]; 32] = [const { [const { AtomicUsize::new(0) }; 2] }; 32];
/// The process that has loaded the library. Its children have other numbers.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The number of names that were looked up in each directory, with the high bits of the hash of the
/// directory's path. Two directories may share a place: then more paths are sent.
static DIRECTORIES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// The number of names in a directory, after which only the directory is sent.
const MANY: u64 = 32;
/// The number of directories that had each descriptor before. It is part of the hash of paths.
static OPENED: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];
/// The number of working directories before.
static MOVED: AtomicU32 = AtomicU32::new(0);
/// The [`key`] of the working directory, with which it was sent. 0 if it is not known.
static WORKING_DIRECTORY: AtomicU64 = AtomicU64::new(0);
/// The paths that were looked up, by the low and the high bits of their hashes.
static TOLD: [AtomicU32; 4096] = [const { AtomicU32::new(0) }; 4096];

/// Begins to tell.
pub fn begin(channel: Channel) {
    channel.tell_use(Kind::Started, thread(), b"", 0..0);
    PROCESS.store(process(), Ordering::Relaxed);
    if system_calls::are_allowed() {
        system_calls::with_errno(|| {
            // SAFETY: the standard input stays open during the call, or is not open.
            let fd = unsafe { BorrowedFd::borrow_raw(0) };
            let position = size(fd).and_then(|size| position(fd, 0, size));
            if let Some(position) = position {
                FILES[0].store(position + 1, Ordering::Relaxed);
            }
        });
    }
    let _ = CHANNEL.set(channel);
}

/// The channel, if `nowait run` learns and this process may make system calls.
pub fn learning() -> Option<&'static Channel> {
    let channel = CHANNEL.get()?;
    let is_on = channel.is_listening(Listening::Directories) && system_calls::are_allowed();
    is_on.then_some(channel)
}

fn file(fd: c_int) -> Option<&'static AtomicU64> {
    FILES.get(usize::try_from(fd).ok()?)
}

/// Returns true if the position from which the program reads this descriptor is known.
pub fn follows(fd: c_int) -> bool {
    file(fd).is_some_and(|file| file.load(Ordering::Relaxed) > 0)
}

/// The program has opened a file with these flags.
#[inline(never)]
pub fn opened(fd: c_int, flags: c_int) {
    if learning().is_some() && flags & libc::O_ACCMODE != libc::O_WRONLY {
        file(fd).inspect(|file| file.store(1, Ordering::Relaxed));
    }
}

/// The program is about to close a descriptor.
pub fn closes(fd: c_int) {
    // Most descriptors have no position here.
    if follows(fd)
        && let Some(file) = file(fd)
        && let Some(channel) = learning()
        && let position @ 1.. = file.swap(0, Ordering::Relaxed)
    {
        system_calls::with_errno(|| read_to_position(channel, fd, position - 1));
    }
}

/// The program duplicates a descriptor. The new one has the same position.
pub fn duplicates<R>(fd: c_int, call: impl FnOnce() -> R) -> R
where
    R: Copy + Into<c_long>,
{
    let result = call();
    let new = result.into() as c_int;
    if new != fd
        && learning().is_some()
        && let (Some(from), Some(to)) = (file(fd), file(new))
    {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        opened_directory(new);
    }
    result
}

/// The program is about to close a stream.
pub fn closes_stream(stream: *mut FILE) {
    if learning().is_some() && !stream.is_null() {
        // A stream of memory has no descriptor, which is an error.
        system_calls::with_errno(|| {
            // SAFETY: the program's stream.
            closes(unsafe { libc::fileno(stream) });
        });
    }
}

/// The program has read `count` bytes at an offset.
pub fn read_at(fd: c_int, offset: off64_t, count: ssize_t) {
    if count > 0
        && let Ok(start) = u64::try_from(offset)
        && let Some(channel) = learning()
        && follows(fd)
        && counts_down(&READS)
    {
        let end = start.saturating_add(count.unsigned_abs() as u64);
        // SAFETY: the program has just read from this descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        system_calls::with_errno(|| tell_part(channel, fd, start..end));
    }
}

/// The program changes the position of a descriptor, or asks for it.
pub fn seeks(
    fd: c_int,
    (offset, from): (off64_t, c_int),
    call: impl FnOnce() -> off64_t,
) -> off64_t {
    if (offset, from) == (0, libc::SEEK_CUR) {
        return call();
    }
    let followed = learning().zip(file(fd));
    let before = followed.map(|(_, file)| file.load(Ordering::Relaxed));
    if let (Some((channel, _)), Some(before @ 1..)) = (followed, before)
        && counts_down(&SEEKS)
    {
        system_calls::with_errno(|| {
            // SAFETY: the program has this descriptor.
            let has_read = is_after(unsafe { BorrowedFd::borrow_raw(fd) }, before - 1);
            if has_read == Some(true) && counts_down(&READS) {
                read_to_position(channel, fd, before - 1);
            }
        });
    }
    let position = call();
    if let (Some((_, file)), Some(1..), Ok(position)) = (followed, before, u64::try_from(position))
    {
        file.store(position + 1, Ordering::Relaxed);
    }
    position
}

/// Returns false if none are left.
fn counts_down(number: &AtomicU32) -> bool {
    let left = number.load(Ordering::Relaxed);
    number.store(left.saturating_sub(1), Ordering::Relaxed);
    left > 0
}

/// Tells of what the program has read up to the position of a descriptor.
fn read_to_position(channel: &Channel, fd: c_int, start: u64) {
    // SAFETY: the program has this descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Some(size) = size(fd)
        && let Some(end) = position(fd, start.min(size), size)
    {
        tell_part(channel, fd, start.min(end)..end);
    }
}

#[inline(never)]
fn tell_part(channel: &Channel, fd: BorrowedFd<'_>, part: Range<u64>) {
    path::with_memory(|path| {
        if let Some(path) = path::of(fd, path) {
            channel.tell_use(Kind::Used, thread(), path, part);
        }
    });
}

/// The program looks up a path, which need not exist.
///
/// # Safety
/// A system call has just read the path.
pub unsafe fn looked_up(path: Named) {
    let Some(channel) = learning() else { return };
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { path.place() }) else {
        return;
    };
    let name = place
        .path
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1);
    let (directory, name) = place.path.split_at(name);
    let before = match usize::try_from(place.fd) {
        Ok(fd) => OPENED.get(fd),
        Err(_) => Some(&MOVED).filter(|_| !directory.starts_with(b"/")),
    };
    let before = before.map_or(0, |it| it.load(Ordering::Relaxed));
    let above = hash(
        directory,
        u64::from(before) << 32 | u64::from(place.fd.cast_unsigned()),
    );
    if was_told(hash(name, above)) {
        return;
    }
    let kind = match names_of(above) {
        ..MANY => Kind::LookedUp,
        MANY => Kind::ManyLookedUp,
        _ => return,
    };
    let is_below = place.fd < 0 && !place.path.starts_with(b"/");
    system_calls::with_errno(|| match kind {
        _ if !is_below => tell_path(channel, kind, place),
        Kind::ManyLookedUp => {
            tell_below(channel, kind, directory.strip_suffix(b"/").unwrap_or(b""))
        }
        kind => tell_below(channel, kind, place.path),
    });
}

/// Counts a name of a directory with this hash, and returns their number.
fn names_of(directory: u64) -> u64 {
    const COUNT: u64 = 0xffff;
    let place = &DIRECTORIES[(directory >> 54) as usize];
    let before = place.load(Ordering::Relaxed);
    let names = match (before ^ directory) & !COUNT {
        0 => (before & COUNT) + 1,
        _ => 1,
    };
    if names <= COUNT {
        place.store(directory & !COUNT | names, Ordering::Relaxed);
    }
    names
}

/// Tells of a path relative to the working directory.
fn tell_below(channel: &Channel, kind: Kind, path: &[u8]) {
    let mut directory = WORKING_DIRECTORY.load(Ordering::Relaxed);
    if directory == 0 {
        directory = tell_working_directory(channel);
    }
    if directory != 0 {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        channel.tell_use_below(kind, thread(), path, directory);
    }
}

#[inline(never)]
fn tell_working_directory(channel: &Channel) -> u64 {
    let told = path::with_memory(|path| {
        let path = path::of(CWD, path)?;
        let id = (0, hash(path, 0));
        channel.tell_directory(thread(), path, id);
        WORKING_DIRECTORY.store(key(id), Ordering::Relaxed);
        Some(key(id))
    });
    told.flatten().unwrap_or(0)
}

/// The descriptor is that of another directory now.
#[inline(never)]
pub fn opened_directory(fd: c_int) {
    if learning().is_some()
        && let Some(before) = usize::try_from(fd).ok().and_then(|fd| OPENED.get(fd))
    {
        before.fetch_add(1, Ordering::Relaxed);
    }
}

/// The program changes its working directory.
pub fn moves() {
    if learning().is_none() {
        return;
    }
    MOVED.fetch_add(1, Ordering::Relaxed);
    WORKING_DIRECTORY.store(0, Ordering::Relaxed);
}

#[inline(never)]
fn tell_path(channel: &Channel, kind: Kind, place: Place<'_>) {
    path::with_memory(|absolute| {
        let Some(mut path) = path::absolute(place, absolute) else {
            return;
        };
        if kind == Kind::ManyLookedUp {
            let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            path = &path[..slash.max(1)];
        }
        channel.tell_use(kind, thread(), path, 0..0);
    });
}

/// FNV-1a.
fn hash(bytes: &[u8], start: u64) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(start ^ 0xcbf2_9ce4_8422_2325, add)
}

/// Returns true if a path with this hash was sent before.
fn was_told(hash: u64) -> bool {
    let told = &TOLD[(hash >> 52) as usize];
    let bits = hash as u32 | 1;
    told.swap(bits, Ordering::Relaxed) == bits
}

/// The program lists the directory of a descriptor.
pub fn listed(fd: c_int) {
    if let Some(channel) = learning() {
        // SAFETY: the program has just listed it.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        system_calls::with_errno(|| tell_listed(channel, fd));
    }
}

#[inline(never)]
fn tell_listed(channel: &Channel, fd: BorrowedFd<'_>) {
    path::with_memory(|path| {
        if let Some(path) = path::of(fd, path) {
            channel.tell_use(Kind::Listed, thread(), path, 0..0);
        }
    });
}

/// The program lists a directory, or the tree below it, by its path.
pub fn lists(path: &[u8]) {
    if let Some(channel) = learning() {
        system_calls::with_errno(|| tell_path(channel, Kind::Listed, Place { fd: -1, path }));
    }
}

/// The process is about to execute another program. The mapped pages of a child are those of its
/// parent.
pub fn executes() {
    if learning().is_some() && PROCESS.load(Ordering::Relaxed) == process() {
        ends();
    }
}

fn process() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// The process is about to end.
pub fn ends() {
    let Some(channel) = learning() else { return };
    system_calls::with_errno(|| {
        for (fd, file) in (0..).zip(&FILES) {
            let position = file.load(Ordering::Relaxed);
            if position > 0 {
                read_to_position(channel, fd, position - 1);
            }
        }
        used_mappings(None, 0..u64::MAX, |path, part| {
            channel.tell_use(Kind::Used, thread(), path, part);
        });
    });
}

/// The program has mapped a descriptor, or other memory, at this address.
pub fn mapped(fd: c_int, address: *mut c_void, len: usize) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if learning().is_some() && follows(fd) && address != libc::MAP_FAILED {
        let mapping = &MAPPINGS[NEXT.fetch_add(1, Ordering::Relaxed) % MAPPINGS.len()];
        mapping[0].store(address.addr(), Ordering::Relaxed);
        mapping[1].store(len, Ordering::Relaxed);
    }
}

/// The program is about to unmap memory.
pub fn unmaps(address: *mut c_void) {
    let address = address.addr();
    if let Some(channel) = learning()
        && let Some([start, len]) = MAPPINGS
            .iter()
            .find(|it| it[0].load(Ordering::Relaxed) == address)
        && address != 0
    {
        start.store(0, Ordering::Relaxed);
        let end = address.saturating_add(len.load(Ordering::Relaxed));
        system_calls::with_errno(|| tell_unmapped(channel, address as u64..end as u64));
    }
}

/// Waits until `nowait run` has asked for the used pages at these addresses: to ask for them here
/// needs a descriptor. If it does not in time, later ones are not sent.
fn tell_unmapped(channel: &Channel, at: Range<u64>) {
    const TRIES: u32 = 100;
    const PAUSE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    if !counts_down(&UNMAPPINGS) {
        return;
    }
    let event = channel.tell_unmapping(thread(), at);
    for _ in 0..TRIES {
        if channel.is_handled(event) {
            return;
        }
        let _ = nanosleep(&PAUSE);
    }
    UNMAPPINGS.store(0, Ordering::Relaxed);
}
