//! Surveys: which pages of a file are resident when the program opens it. `nowait run
//! --keep-cache` evicts the others.
//!
//! The system calls of a survey are made in the program, before it can read the file, and before it
//! closes a small one. None is made in a process that has a filter of system calls, or may have one:
//! see [`stop`].

use std::ffi::{c_int, c_long};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nowait_ahead_channel::{
    Channel, EvictedFiles, Kind, Listening, Missing, PATH_MAX, Place, has_filter,
};
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, fstatfs, makedev, statx};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::path::DecInt;

use crate::named::Named;
use crate::next::functions;
use crate::open_files::{self, OpenFile};
use crate::thread::thread;

functions!(find syscall posix_fadvise64);

static CHANNEL: OnceLock<Channel> = OnceLock::new();
/// True if this process has no filter of system calls.
static MAY_CALL: AtomicBool = AtomicBool::new(false);
/// The number of pauses that this process still makes for `nowait run`.
static PAUSES: AtomicU32 = AtomicU32::new(100);
const PAUSE: Duration = Duration::from_millis(1);

/// The pages of a window. A bit for each fits into an event.
const PAGES: usize = 2048;
/// A file on overlayfs or FUSE that is larger is not surveyed: that would take long.
const MAX_MAPPED: u64 = 4 << 30;

/// `f_type` of statfs(2). Reads of their files may be served from the pages of other files, which
/// cachestat(2) does not count.
const LAYERED: [c_long; 2] = [libc::OVERLAYFS_SUPER_MAGIC, libc::FUSE_SUPER_MAGIC];

/// The device and the inode number of the directory that was last told of. Threads may mix them up.
/// Then the directory is told of again, or not found.
static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The pages of a file that are not resident.
#[derive(Clone, Copy)]
struct Found {
    /// See [`nowait_ahead_channel::Event::pages`].
    pages: u64,
    /// The number of resident pages, if it was counted.
    resident: Option<u64>,
}

/// A file of the program while it is surveyed.
struct File<'a> {
    channel: &'a Channel,
    fd: BorrowedFd<'a>,
    thread: u32,
    id: (u64, u64),
    mount: u64,
    size: u64,
    /// The size of a page and of a window.
    page: u64,
    window: u64,
}

/// Begins to survey files.
pub fn begin(channel: Channel) {
    MAY_CALL.store(!has_filter(), Ordering::Relaxed);
    if channel.is_listening(Listening::Directories) {
        channel.tell(Kind::Started, thread(), Place::NONE, (0, 0), 0);
    }
    let _ = CHANNEL.set(channel);
    // The shell, or the caller of `nowait run`, has opened these.
    if MAY_CALL.load(Ordering::Relaxed) {
        for (fd, flags) in [
            (0, libc::O_RDONLY),
            (1, libc::O_WRONLY),
            (2, libc::O_WRONLY),
        ] {
            let mut path = [0; PATH_MAX + 1];
            // SAFETY: the descriptor is used in this call only.
            if path_of(unsafe { BorrowedFd::borrow_raw(fd) }, &mut path).is_some() {
                // SAFETY: readlink(2) has returned the path, and a zero is behind it.
                unsafe { opened(fd, Named::here(path.as_ptr().cast()), flags) };
            }
        }
        open_files::share_all();
    }
}

/// Ends the surveys of this process, which is about to install a filter of system calls.
pub fn stop() {
    MAY_CALL.store(false, Ordering::Relaxed);
}

/// Returns true if `nowait run` keeps the page cache.
pub fn is_on() -> bool {
    CHANNEL.get().is_some()
}

/// The channel, if files are surveyed. In a control group they need no survey.
fn surveys() -> Option<&'static Channel> {
    let channel = CHANNEL.get()?;
    let is_on = channel.is_listening(Listening::Directories) && MAY_CALL.load(Ordering::Relaxed);
    is_on.then_some(channel)
}

/// Makes system calls without changing the errno of the program.
fn with_errno(calls: impl FnOnce()) {
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    calls();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Surveys a file that the program has just opened. errno stays as it is.
///
/// # Safety
/// A system call has just accepted the path.
pub unsafe fn opened(fd: c_int, file: Named, flags: c_int) {
    let Some(channel) = surveys() else { return };
    // The number may have been closed in another way.
    open_files::remove(fd);
    with_errno(|| {
        // SAFETY: the C library has just returned this descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if waited_for_room(channel)
            && let Some(surveyed) = File::new(channel, fd)
        {
            // SAFETY: the caller's promise.
            surveyed.survey(
                unsafe { file.place() },
                flags & libc::O_ACCMODE != libc::O_RDONLY,
            );
        }
    });
}

/// The program is about to close a descriptor. Evicts a small file that only this descriptor has.
pub fn closes(fd: c_int) {
    if let Some(file) = open_files::remove(fd)
        && let Some(channel) = surveys()
        && channel.is_claimed(file.id, file.token)
    {
        with_errno(|| {
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

/// A number that no other claim has. `None` in an old C library, where threads have no ID.
fn token(thread: u32) -> Option<u64> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    (thread != 0).then_some(u64::from(thread) << 32 | u64::from(count))
}

/// The path of an open file or of the working directory. `None` if it does not fit into an event.
fn path_of<'a>(fd: BorrowedFd<'_>, path: &'a mut [u8; PATH_MAX + 1]) -> Option<&'a [u8]> {
    let mut name = *b"/proc/self/cwd\0\0\0\0\0\0\0\0\0\0\0\0";
    if fd.as_raw_fd() >= 0 {
        let number = DecInt::from_fd(fd);
        let digits = number.as_bytes_with_nul();
        name[11..14].copy_from_slice(b"fd/");
        name[14..14 + digits.len()].copy_from_slice(digits);
    }
    // SAFETY: the name ends with a zero, and the path has room for this length.
    let len = unsafe { libc::readlink(name.as_ptr().cast(), path.as_mut_ptr().cast(), PATH_MAX) };
    let len = usize::try_from(len).ok().filter(|&len| len < PATH_MAX)?;
    Some(&path[..len])
}

fn id_of(stat: &Statx) -> (u64, u64) {
    (
        makedev(stat.stx_dev_major, stat.stx_dev_minor),
        stat.stx_ino,
    )
}

/// Waits until `nowait run` has read older events. Returns false if it does not, or did not before.
fn waited_for_room(channel: &Channel) -> bool {
    while !channel.has_room() {
        let left = PAUSES.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        PAUSES.store(left - 1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    true
}

impl<'a> File<'a> {
    /// `None` if it is no regular file.
    fn new(channel: &'a Channel, fd: BorrowedFd<'a>) -> Option<File<'a>> {
        let fields = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::MNT_ID;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(fd, c"", flags, fields).ok()?;
        let is_regular = FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::RegularFile;
        // SAFETY: sysconf(3) knows the size of a page without a system call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        is_regular.then_some(File {
            channel,
            fd,
            thread: thread(),
            id: id_of(&stat),
            mount: stat.stx_mnt_id,
            size: stat.stx_size,
            page,
            window: page * PAGES as u64,
        })
    }

    /// Tells of the path of a directory, unless it was the last one. The descriptor may be closed
    /// when `nowait run` reads the event. Returns the inode number, or 0.
    fn tell_directory(&self, directory: c_int) -> u64 {
        let fd = match directory {
            // SAFETY: the program has just opened a file relative to this descriptor.
            0.. => unsafe { BorrowedFd::borrow_raw(directory) },
            _ => CWD,
        };
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let Ok(stat) = statx(fd, c"", flags, StatxFlags::INO) else {
            return 0;
        };
        let id = id_of(&stat);
        if LAST[0].load(Ordering::Relaxed) == id.0 && LAST[1].load(Ordering::Relaxed) == id.1 {
            return id.1;
        }
        let mut path = [0; PATH_MAX + 1];
        if let Some(path) = path_of(fd, &mut path) {
            let place = Place { fd: -1, path };
            self.channel
                .tell(Kind::Directory, self.thread, place, id, 0);
            LAST[0].store(id.0, Ordering::Relaxed);
            LAST[1].store(id.1, Ordering::Relaxed);
        }
        id.1
    }

    /// Surveys the file, and tells of the pages that are not resident. A file that is written may
    /// become longer: pages after its end are not resident.
    fn survey(&self, place: Option<Place<'_>>, is_written: bool) {
        let is_new = is_written && self.size == 0;
        let token = token(self.thread).filter(|_| !is_new);
        let is_claimed = token.is_some_and(|token| self.channel.claim(self.id, token));
        let found = self.missing(is_written);
        let event = place.zip(found).and_then(|(place, found)| {
            let directory = match place.path.starts_with(b"/") {
                true => 0,
                false => self.tell_directory(place.fd),
            };
            let (number, last) = (self.fd.as_raw_fd(), [directory, found.pages]);
            self.channel
                .tell_surveyed(self.thread, place, self.id, number, last)
        });
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
                open_files::insert(self.fd.as_raw_fd(), &file);
            }
            // All of its pages are resident.
            (None, None) => drop(self.channel.release(self.id, token)),
            _ => {}
        }
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
        let resident = match self.is_layered()? {
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
                resident,
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
    fn missing_of_few(&self, end: u64, is_counted: bool) -> Option<u64> {
        /// For more pages, mincore(2) takes less time than several calls of cachestat(2).
        const FEW: usize = 16;
        let mut bits = [0; PAGES / 8];
        let pages = (end / self.page) as usize;
        let is_known =
            !(is_counted && pages <= FEW) && self.missing_pages(&(0..end), &mut bits).is_some();
        if !is_known {
            if !is_counted {
                return None;
            }
            self.count_missing(&(0..end), 0..pages, &mut bits);
        }
        let (first, _) = bits.split_first_chunk()?;
        Some(u64::from_le_bytes(*first))
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
        let end = self.size.next_multiple_of(self.page);
        if let Some(left) = self.resident(0..end.max(self.page))
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

    /// Returns true if the files of the filesystem may be served from the pages of others.
    fn is_layered(&self) -> Option<bool> {
        /// The last device without that, plus one.
        static PLAIN: AtomicU64 = AtomicU64::new(0);
        let device = self.id.0.wrapping_add(1);
        if PLAIN.load(Ordering::Relaxed) == device {
            return Some(false);
        }
        let is_layered = LAYERED.contains(&(fstatfs(self.fd).ok()?.f_type as c_long));
        if !is_layered {
            PLAIN.store(device, Ordering::Relaxed);
        }
        Some(is_layered)
    }

    /// Tells of each window, and of what may be after the end of the file.
    fn tell_windows(&self, end: u64, is_counted: bool) -> bool {
        let mut missing = 0..0;
        for start in (0..end).step_by(self.window as usize) {
            let window = start..end.min(start + self.window);
            let is_empty = is_counted && self.resident(window.clone()) == Some(0);
            let mut bits = [0; PAGES / 8];
            let pages = ((window.end - window.start) / self.page) as usize;
            let count = match is_empty {
                true => pages,
                // A file that is open for writing only cannot be mapped.
                false => match self.missing_pages(&window, &mut bits) {
                    Some(count) => count,
                    None if is_counted => self.count_missing(&window, 0..pages, &mut bits),
                    None => return false,
                },
            };
            if count == pages {
                let is_next = missing.end == window.start && missing.start < missing.end;
                missing = if is_next { missing.start } else { window.start }..window.end;
                continue;
            }
            self.tell_range(std::mem::take(&mut missing));
            if count > 0 {
                let pages = &bits[..pages.div_ceil(8)];
                self.tell_part(window, pages);
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
    fn count_missing(
        &self,
        window: &Range<u64>,
        pages: Range<usize>,
        bits: &mut [u8; PAGES / 8],
    ) -> usize {
        let offset = |page: usize| window.start + page as u64 * self.page;
        match self.resident(offset(pages.start)..offset(pages.end)) {
            Some(0) => {
                pages
                    .clone()
                    .for_each(|page| bits[page / 8] |= 1 << (page % 8));
                pages.len()
            }
            Some(resident) if resident < pages.len() as u64 && pages.len() > 1 => {
                let middle = pages.start + pages.len() / 2;
                self.count_missing(window, pages.start..middle, bits)
                    + self.count_missing(window, middle..pages.end, bits)
            }
            _ => 0,
        }
    }

    /// Sets the bits of pages that are not resident, and counts them. If the user may not know,
    /// mincore(2) says that all are resident.
    fn missing_pages(&self, window: &Range<u64>, bits: &mut [u8; PAGES / 8]) -> Option<usize> {
        let len = (window.end - window.start) as usize;
        let (null, flags) = (null_mut(), MapFlags::SHARED);
        let mut resident = [0; PAGES];
        // SAFETY: the kernel chooses an address that is free. The memory is never accessed.
        let start =
            unsafe { mmap(null, len, ProtFlags::READ, flags, self.fd, window.start) }.ok()?;
        // SAFETY: the memory is mapped, and `resident` has a byte for each of its pages.
        let answer = unsafe { libc::mincore(start, len, resident.as_mut_ptr()) };
        // SAFETY: this function has mapped it.
        let _ = unsafe { munmap(start, len) };
        if answer != 0 {
            return None;
        }
        let missing = (0..len / self.page as usize).filter(|&page| resident[page] & 1 == 0);
        let set = missing.inspect(|page| bits[page / 8] |= 1 << (page % 8));
        Some(set.count())
    }
}

/// cachestat(2) by the C library's syscall(2). `range` has the start and the length. The first of
/// `counts` becomes the number of resident pages. Returns -1 and sets errno if it fails.
fn cachestat(fd: BorrowedFd<'_>, range: [u64; 2], counts: &mut [u64; 5]) -> c_long {
    /// The number of the call on all architectures.
    const CACHESTAT: c_long = 451;
    let next = find::syscall.address();
    if next.is_null() {
        return -1;
    }
    // SAFETY: this is the type of syscall(2).
    let next: unsafe extern "C" fn(c_long, ...) -> c_long = unsafe { std::mem::transmute(next) };
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
