//! Surveys: which pages of a file are resident when the program opens it. `nowait run
//! --keep-cache` evicts the others.
//!
//! The system calls of a survey are made in the program, before it can read the file, and before it
//! closes a small one. None is made in a process that has a filter of system calls, or may have one.
//! None of them asks a server. Where the kernel has no cachestat(2) for a file, parts of it are mapped
//! one after the other, without access. Such a mapping would count as locked after mlockall(2): then the
//! file is not surveyed.

use std::ffi::{c_int, c_long};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use libc::FILE;
use nowait_ahead_channel::{Channel, EvictedFiles, Kind, Listening, Missing, Place, key};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::{Timespec, nanosleep};

use crate::named::Named;
use crate::next::functions;
use crate::open_files::{self, OpenFile};
use crate::path;
use crate::statx::{statx, syscall};
use crate::system_calls;
use crate::thread::thread;

functions!(find posix_fadvise64);

static CHANNEL: OnceLock<Channel> = OnceLock::new();
/// The number of pauses that this process still makes for `nowait run`.
static PAUSES: AtomicU32 = AtomicU32::new(100);
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// The pages of a window. A bit for each fits into an event.
const PAGES: usize = 2048;
/// The bytes that are mapped at once.
const MAPPED: u64 = 2 << 20;
/// A file of which all parts are mapped, and that is larger, is not surveyed: that would take long.
const MAX_MAPPED: u64 = 4 << 30;
/// True if later mappings are locked.
static LOCKED: AtomicBool = AtomicBool::new(false);

/// `f_type` of statfs(2). Reads of their files may be served from the pages of other files, which
/// cachestat(2) does not count. So may those of FUSE, but its files may not be mapped without asking
/// the server, and the pages of others cannot be evicted by them.
const LAYERED: [u64; 2] = [libc::OVERLAYFS_SUPER_MAGIC as u64, EROFS_SUPER_MAGIC];
/// With the mount option `inode_share` (Linux 7.0), files of the same content share their pages.
const EROFS_SUPER_MAGIC: u64 = 0xe0f5_e1e2;

/// The [`key`] of the directory that was last told of.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The pages of a file that are not resident.
#[derive(Clone, Copy)]
struct Found {
    /// See [`nowait_ahead_channel::Event::pages`].
    pages: u64,
    /// The number of resident pages, if it is known.
    resident: Option<u64>,
}

/// A file of the program while it is surveyed.
struct File<'a> {
    channel: &'a Channel,
    fd: BorrowedFd<'a>,
    thread: u32,
    id: (u64, u64),
    mount: u64,
    /// The filesystem may be one of [`LAYERED`]: it has no device of its own, or its files cannot be changed.
    may_be_layered: bool,
    size: u64,
    /// The size of a page and of a window.
    page: u64,
    window: u64,
}

/// Begins to survey files.
pub fn begin(channel: Channel) {
    if channel.is_listening(Listening::Directories) {
        channel.tell(Kind::Started, thread(), Place::NONE, (0, 0), 0);
    }
    let _ = CHANNEL.set(channel);
    if system_calls::are_allowed() {
        inherited();
        open_files::share_all();
    }
}

/// Surveys files that the shell, or the caller of `nowait run`, has opened. A shell gives numbers
/// below 10.
fn inherited() {
    for fd in 0..10 {
        // SAFETY: the descriptor is used in this call only.
        if let Ok(flags) = fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) })
            && !flags.contains(OFlags::PATH)
        {
            let flags = flags.bits().cast_signed();
            // SAFETY: there is no path.
            unsafe { opened(fd, Named::here(null()), flags, open_files::shared()) };
        }
    }
}

/// The program is about to lock its memory.
pub fn locks(flags: c_int) {
    if flags & libc::MCL_FUTURE != 0 {
        LOCKED.store(true, Ordering::Relaxed);
    }
}

/// The program has unlocked its memory.
pub fn unlocks() {
    LOCKED.store(false, Ordering::Relaxed);
}

/// Returns true if `nowait run` keeps the page cache.
pub fn is_on() -> bool {
    let channel = CHANNEL.get();
    channel.is_some_and(|channel| channel.is_listening(Listening::Advice))
}

/// Returns true if `nowait run` keeps the page cache, and these descriptors are known to be of two
/// files.
pub fn are_different_files(a: c_int, b: c_int) -> bool {
    let id = |fd| {
        // SAFETY: the descriptor is used in this call only.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Some(statx(fd, 0)?.id)
    };
    is_on()
        && system_calls::are_allowed()
        && a >= 0
        && b >= 0
        && id(a).zip(id(b)).is_some_and(|(a, b)| a != b)
}

/// The channel, if files are surveyed. In a control group they need no survey.
fn surveys() -> Option<&'static Channel> {
    let channel = CHANNEL.get()?;
    let is_on = channel.is_listening(Listening::Directories) && system_calls::are_allowed();
    is_on.then_some(channel)
}

/// Surveys a file that the program has just opened. errno stays as it is. `shared` is
/// [`open_files::shared`] before that.
///
/// # Safety
/// A system call has just accepted the path.
#[inline(never)]
pub unsafe fn opened(fd: c_int, file: Named, flags: c_int, shared: u32) {
    let Some(channel) = surveys() else { return };
    // The number may have been closed in another way.
    open_files::remove(fd);
    system_calls::with_errno(|| {
        // SAFETY: the C library has just returned this descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if waited_for_room(channel)
            && let Some(surveyed) = File::new(channel, fd)
        {
            // SAFETY: the caller's promise.
            let place = unsafe { file.place() };
            let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
            surveyed.survey(place, is_written, shared);
        }
    });
}

/// The program is about to close a descriptor. Evicts a small file that only this descriptor has.
pub fn closes(fd: c_int) {
    if let Some(file) = open_files::remove(fd)
        && let Some(channel) = surveys()
        && channel.is_claimed(file.id, file.token)
    {
        system_calls::with_errno(|| {
            // SAFETY: the program is about to close this descriptor.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if let Some(open) = File::new(channel, fd)
                && open.id == file.id
            {
                open.evict(&file);
            }
        });
    }
}

/// The program is about to close a stream.
pub fn closes_stream(stream: *mut FILE) {
    if is_on() && !stream.is_null() {
        // A stream of memory has no descriptor, which is an error.
        system_calls::with_errno(|| {
            // SAFETY: the program's stream.
            closes(unsafe { libc::fileno(stream) });
        });
    }
}

/// The program unmounts a filesystem. `nowait run` may hold files of it.
pub fn unmounts(call: impl Fn() -> c_int) -> c_int {
    const TRIES: u32 = 100;
    let mut result = call();
    for _ in 0..TRIES {
        // SAFETY: the address of this thread's errno.
        let is_busy = result != 0 && unsafe { *libc::__errno_location() } == libc::EBUSY;
        let Some(channel) = surveys().filter(|_| is_busy) else {
            break;
        };
        channel.ask_to_let_go();
        let _ = nanosleep(&PAUSE);
        result = call();
    }
    result
}

/// A number that no other claim has. `None` in an old C library, where threads have no ID.
fn token(thread: u32) -> Option<u64> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    (thread != 0).then_some(u64::from(thread) << 32 | u64::from(count))
}

/// Waits until `nowait run` has read older events. Returns false if it does not, or did not before.
#[inline(never)]
fn waited_for_room(channel: &Channel) -> bool {
    while !channel.has_room() {
        let left = PAUSES.load(Ordering::Relaxed);
        if left == 0 || !channel.may_pause() {
            return false;
        }
        PAUSES.store(left - 1, Ordering::Relaxed);
        // This is no cancellation point (pthreads(7)): the program has not yet got its descriptor.
        let _ = nanosleep(&PAUSE);
    }
    true
}

impl<'a> File<'a> {
    /// `None` if it is no regular file.
    #[inline(never)]
    fn new(channel: &'a Channel, fd: BorrowedFd<'a>) -> Option<File<'a>> {
        let stat = statx(fd, libc::STATX_MNT_ID)?;
        // SAFETY: sysconf(3) knows the size of a page without a system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        stat.is_regular.then_some(File {
            channel,
            fd,
            thread: thread(),
            id: stat.id,
            mount: stat.mount.unwrap_or(0),
            may_be_layered: !stat.has_device || stat.is_immutable,
            size: stat.size,
            page,
            window: page * PAGES as u64,
        })
    }

    /// Tells of the path of a directory, unless it was the last one. The descriptor may be closed
    /// when `nowait run` reads the event. Returns the [`key`] of the directory, or 0.
    #[inline(never)]
    fn tell_directory(&self, directory: c_int) -> u64 {
        // SAFETY: the program has just opened a file relative to this descriptor.
        let fd = unsafe { path::directory(directory) };
        let Some(id) = statx(fd, 0).map(|stat| stat.id) else {
            return 0;
        };
        if LAST.load(Ordering::Relaxed) != key(id) {
            path::with_memory(|path| {
                if let Some(path) = path::of(fd, path) {
                    self.channel.tell_directory(self.thread, path, id);
                    LAST.store(key(id), Ordering::Relaxed);
                }
            });
        }
        key(id)
    }

    /// Surveys the file, and tells of the pages that are not resident. A file that is written may
    /// become longer: pages after its end are not resident.
    fn survey(&self, place: Option<Place<'_>>, is_written: bool, shared: u32) {
        let is_new = is_written && self.size == 0;
        let token = token(self.thread).filter(|_| !is_new);
        let is_claimed = token.is_some_and(|token| self.channel.claim(self.id, token));
        let found = self.missing(is_written);
        let event = found.and_then(|found| self.tell(place, found.pages));
        let Some(token) = token.filter(|_| is_claimed) else {
            return;
        };
        match (event, found) {
            (
                Some(event),
                Some(Found {
                    pages,
                    resident: Some(resident),
                }),
            ) if pages != 0 && !is_written && self.size <= self.window => {
                let id = self.id;
                let file = OpenFile {
                    event,
                    token,
                    id,
                    pages,
                    resident,
                };
                open_files::insert(self.fd.as_raw_fd(), &file, shared);
            }
            // All of its pages are resident.
            (None, None) => drop(self.channel.release(self.id, token)),
            _ => {}
        }
    }

    /// Tells of the pages that are not resident. A file without a path is told of by its own.
    fn tell(&self, place: Option<Place<'_>>, pages: u64) -> Option<u64> {
        match place {
            Some(place) => {
                let is_relative = !place.path.starts_with(b"/");
                let directory = is_relative.then(|| self.tell_directory(place.fd));
                self.tell_at(place, directory.unwrap_or(0), pages)
            }
            None => self.tell_by_own_path(pages),
        }
    }

    #[inline(never)]
    fn tell_by_own_path(&self, pages: u64) -> Option<u64> {
        let told = path::with_memory(|path| {
            let path = path::of(self.fd, path).unwrap_or_default();
            self.tell_at(Place { fd: -1, path }, 0, pages)
        });
        told.flatten()
    }

    fn tell_at(&self, place: Place<'_>, directory: u64, pages: u64) -> Option<u64> {
        let number = self.fd.as_raw_fd();
        let last = [directory, pages];
        self.channel
            .tell_surveyed(self.thread, place, self.id, number, last)
    }

    /// The pages that are not resident. `None` if there is none, or no answer.
    fn missing(&self, is_written: bool) -> Option<Found> {
        let end = self.size.next_multiple_of(self.page);
        let all = |resident| {
            Some(Found {
                pages: u64::MAX,
                resident,
            })
        };
        if self.size == 0 {
            return if is_written { all(None) } else { None };
        }
        let count = end / self.page;
        let resident = match self.is_layered() {
            true => None,
            false => self.resident(0..end),
        };
        if resident == Some(0) {
            return all(resident);
        }
        let is_cached = resident.is_some_and(|resident| resident >= count);
        if is_cached && !is_written {
            return None;
        }
        if count < u64::from(u64::BITS) {
            let pages = match is_cached {
                true => 0,
                false => self.missing_of_few(end, resident.is_some())?,
            };
            let has_more = is_written || pages != 0;
            let after = if has_more { u64::MAX << count } else { 0 };
            return has_more.then_some(Found {
                pages: pages | after,
                resident: Some(count - u64::from(pages.count_ones())),
            });
        }
        let is_told = match is_cached {
            true => self.tell_range(end..u64::MAX),
            false => {
                (resident.is_some() || end <= MAX_MAPPED)
                    && self.tell_windows(end, resident.is_some())
            }
        };
        is_told.then_some(Found { pages: 0, resident })
    }

    /// The pages that are not resident in a file of less than 64 pages.
    #[inline(never)]
    fn missing_of_few(&self, end: u64, is_counted: bool) -> Option<u64> {
        let mut bits = [0; 8];
        match is_counted {
            true => self.count_missing(&(0..end), &mut bits),
            false => self.missing_pages(&(0..end), &mut bits)?,
        };
        Some(u64::from_le_bytes(bits))
    }

    /// Evicts the pages that were not resident before, and withdraws the event if no page is left.
    fn evict(&self, file: &OpenFile) {
        let mut start = 0;
        while start < u64::BITS {
            start += (file.pages >> start).trailing_zeros();
            let len = file.pages.checked_shr(start).unwrap_or(0).trailing_ones();
            let end = start + len;
            if len > 0 {
                // A length of 0 means up to the end of the file.
                let len = if end == u64::BITS {
                    0
                } else {
                    u64::from(len) * self.page
                };
                let offset = u64::from(start) * self.page;
                evict(self.fd.as_raw_fd(), offset.cast_signed(), len.cast_signed());
            }
            start = end.max(start + 1);
        }
        if let Some(left) = self.left()
            && left <= file.resident
            && self.channel.release(file.id, file.token)
            && self.channel.withdraw(file.event)
        {
            let bytes = |pages: u64| (pages * self.page).min(self.size);
            self.channel.count_evicted(EvictedFiles {
                mount: self.mount,
                files: 1,
                before: bytes(file.resident),
                after: bytes(left),
            });
        }
    }

    /// The resident pages of a small file.
    fn left(&self) -> Option<u64> {
        let end = self.size.next_multiple_of(self.page).max(self.page);
        if !self.is_layered() {
            return self.resident(0..end);
        }
        // The file may have grown.
        let range = Some(0..end).filter(|it| it.end <= self.window)?;
        let missing = self.missing_pages(&range, &mut [])?;
        Some(end / self.page - missing as u64)
    }

    /// Returns true if the files of the filesystem may be served from the pages of others. The kernel is
    /// asked once for each mount, unless there are many.
    fn is_layered(&self) -> bool {
        static KNOWN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
        if !self.may_be_layered {
            return false;
        }
        let mount = key((self.id.0, self.mount));
        let known = &KNOWN[(mount >> 60) as usize];
        let of = |is_layered| mount & !1 | u64::from(is_layered);
        let found = known.load(Ordering::Relaxed);
        if let Some(is_layered) = [false, true].into_iter().find(|&it| found == of(it)) {
            return is_layered;
        }
        // Before Linux 6.8, all filesystems without a device are taken to be layered.
        let is_layered = self.filesystem().is_none_or(|it| LAYERED.contains(&it));
        known.store(of(is_layered), Ordering::Relaxed);
        is_layered
    }

    /// `f_type` of statfs(2), which would ask a server. By statmount(2) of Linux 6.8.
    #[inline(never)]
    fn filesystem(&self) -> Option<u64> {
        /// The number of the call on all architectures.
        const STATMOUNT: c_long = 457;
        const SB_BASIC: u64 = 1;
        /// `STATX_MNT_ID_UNIQUE`.
        const UNIQUE_ID: u32 = 0x4000;
        /// The first words of `struct statmount`. The fourth one is `sb_magic`.
        const WORDS: usize = 8;
        let request = [24, statx(self.fd, UNIQUE_ID)?.mount?, SB_BASIC];
        let mut answer = [0_u64; WORDS];
        let next = syscall()?;
        let (request, to) = (request.as_ptr(), answer.as_mut_ptr());
        // SAFETY: the kernel reads the request, whose first word is its size, and writes at most as many bytes as
        // the answer has.
        let result = unsafe { next(STATMOUNT, request, to, size_of::<[u64; WORDS]>(), 0) };
        (result == 0 && answer[1] & SB_BASIC != 0).then_some(answer[3])
    }

    /// Tells of each window, and of what may be after the end of the file. A hole may be larger than
    /// all that is cached: ever longer parts are asked for while nothing is.
    #[inline(never)]
    fn tell_windows(&self, end: u64, is_counted: bool) -> bool {
        // The bits are not on the stack, which may be small.
        let told = path::with_memory(|memory| {
            let (bits, _) = memory.split_at_mut(PAGES / 8);
            self.tell_windows_with(end, is_counted, bits)
        });
        told.unwrap_or(false)
    }

    #[inline(always)]
    fn tell_windows_with(&self, end: u64, is_counted: bool, bits: &mut [u8]) -> bool {
        let mut missing = 0..0;
        let (mut start, mut len) = (0, self.window);
        while start < end {
            let part = start..end.min(start.saturating_add(len));
            let resident = match is_counted {
                true => self.resident(part.clone()),
                false => None,
            };
            if len > self.window && resident != Some(0) {
                len = self.window;
                continue;
            }
            bits.fill(0);
            let pages = ((part.end - part.start) / self.page) as usize;
            let count = match resident {
                Some(0) => pages,
                Some(resident) if resident >= pages as u64 => 0,
                Some(_) => self.count_missing(&part, bits),
                None => match self.missing_pages(&part, bits) {
                    Some(count) => count,
                    None => return false,
                },
            };
            start = part.end;
            if count == pages {
                let is_next = missing.end == part.start && missing.start < missing.end;
                missing = if is_next { missing.start } else { part.start }..part.end;
                len = len.saturating_mul(2);
                continue;
            }
            len = self.window;
            self.tell_range(std::mem::take(&mut missing));
            if count > 0 {
                let pages = &bits[..pages.div_ceil(8)];
                self.tell_part(part, pages);
            }
        }
        let start = if missing.end == end && !missing.is_empty() {
            missing.start
        } else {
            end
        };
        self.tell_range(start..u64::MAX)
    }

    fn tell_range(&self, range: Range<u64>) -> bool {
        if !range.is_empty() {
            self.tell_part(range, &[]);
        }
        true
    }

    #[inline(never)]
    fn tell_part(&self, Range { start, end }: Range<u64>, pages: &[u8]) {
        let part = Missing { start, end, pages };
        if waited_for_room(self.channel) {
            self.channel.tell_missing(self.thread, self.id, part);
        }
    }

    /// The resident pages of a range by cachestat(2). `None` if it does not answer.
    fn resident(&self, range: Range<u64>) -> Option<u64> {
        // The first one is the number of resident pages.
        let mut counts = [0; 5];
        let answer = cachestat(self.fd, [range.start, range.end - range.start], &mut counts);
        (answer == 0).then_some(counts[0])
    }

    /// Sets the bits of pages of a window that are not resident by cachestat(2) of ever smaller
    /// parts, and counts them.
    fn count_missing(&self, window: &Range<u64>, bits: &mut [u8]) -> usize {
        let pages = ((window.end - window.start) / self.page) as usize;
        let offset = |page: usize| window.start + page as u64 * self.page;
        let (mut at, mut len, mut missing) = (0, pages.next_power_of_two(), 0);
        while at < pages {
            let part = at..pages.min(at + len);
            match self.resident(offset(part.start)..offset(part.end)) {
                Some(0) => {
                    part.clone().for_each(|page| set(bits, page));
                    missing += part.len();
                }
                Some(resident) if resident < part.len() as u64 && len > 1 => {
                    len /= 2;
                    continue;
                }
                _ => {}
            }
            at = part.end;
            len = 1 << at.trailing_zeros();
        }
        missing
    }

    /// Sets the bits of pages that are not resident, and counts them. If the user may not know,
    /// mincore(2) says that all are resident. `None` if the file cannot be mapped: it is open for writing
    /// only, or mappings are locked.
    fn missing_pages(&self, window: &Range<u64>, bits: &mut [u8]) -> Option<usize> {
        let mut missing = 0;
        for start in window.clone().step_by(MAPPED as usize) {
            let part = start..window.end.min(start + MAPPED);
            let before = ((start - window.start) / self.page) as usize;
            let pages = self.mapped(&part, |page| {
                set(bits, before + page);
                missing += 1;
            });
            pages?;
        }
        Some(missing)
    }

    /// Calls `each` with the pages of a part that are not resident, by a mapping without access.
    #[inline(never)]
    fn mapped(&self, part: &Range<u64>, mut each: impl FnMut(usize)) -> Option<()> {
        if LOCKED.load(Ordering::Relaxed) {
            return None;
        }
        let len = (part.end - part.start) as usize;
        let (null, flags, none) = (null_mut(), MapFlags::SHARED, ProtFlags::empty());
        // The smallest page has 4 KiB.
        const { assert!(MAPPED as usize / 4096 <= path::LONGEST) };
        path::with_memory(|resident| {
            // SAFETY: the kernel chooses an address that is free. The memory is never accessed.
            let start = unsafe { mmap(null, len, none, flags, self.fd, part.start) }.ok()?;
            // SAFETY: the memory is mapped, and `resident` has a byte for each of its pages.
            let answer = unsafe { libc::mincore(start, len, resident.as_mut_ptr()) };
            // SAFETY: this function has mapped it.
            let _ = unsafe { munmap(start, len) };
            if answer != 0 {
                return None;
            }
            (0..len / self.page as usize)
                .filter(|&page| resident[page] & 1 == 0)
                .for_each(&mut each);
            Some(())
        })?
    }
}

/// Sets the bit of a page, if there is memory for it.
fn set(bits: &mut [u8], page: usize) {
    if let Some(bits) = bits.get_mut(page / 8) {
        *bits |= 1 << (page % 8);
    }
}

/// cachestat(2) by the C library's syscall(2). `range` has the start and the length. The first of
/// `counts` becomes the number of resident pages. Returns -1 and sets errno if it fails.
fn cachestat(fd: BorrowedFd<'_>, range: [u64; 2], counts: &mut [u64; 5]) -> c_long {
    /// The number of the call on all architectures.
    const CACHESTAT: c_long = 451;
    let Some(next) = syscall() else { return -1 };
    let (range, counts) = (range.as_ptr(), counts.as_mut_ptr());
    // SAFETY: both have the kernel's layout and are valid during the call.
    unsafe { next(CACHESTAT, fd.as_raw_fd(), range, counts, 0) }
}

/// Evicts clean pages that are not mapped, by the C library's posix_fadvise(2). Returns its error.
pub fn evict(fd: c_int, offset: i64, len: i64) -> c_int {
    let next = find::posix_fadvise64.address();
    if next.is_null() {
        return libc::ENOSYS;
    }
    type Advise = unsafe extern "C" fn(c_int, i64, i64, c_int) -> c_int;
    // SAFETY: the C library's function of this name has this type.
    let next: Advise = unsafe { std::mem::transmute(next) };
    // SAFETY: any numbers are allowed.
    unsafe { next(fd, offset, len, libc::POSIX_FADV_DONTNEED) }
}
