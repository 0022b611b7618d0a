//! Files that are surveyed in windows. A window is surveyed before the first call that may read it, and that is when a
//! call comes so near to it that the kernel may read it ahead.
//!
//! ```text
//!  opened:   │▓▓ first │▓▓▓▓▓ nothing resident │ some are ░░░░░░░░░░░░░░░░░░░░░░░░░░░│
//!  read(2):            position ──► + length ──► + readahead of the kernel ──► survey up to here
//! ```
//!
//! A page that is read in another way (io_uring(7), a stream of stdio(3) behind its first part) is resident when its
//! window is surveyed, or the window is never surveyed. Then the page stays: no page is evicted by guess.

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nowait_ahead_channel::{Channel, key};

use crate::path;
use crate::position::{is_after, position};
use crate::survey_events::{Survey, surveys};
use crate::system_calls;

/// The bytes of a window.
const WINDOW: u64 = 2 << 20;
/// The bits of the pages of a window. The smallest page has 4 KiB.
const BITS: usize = WINDOW as usize / 4096 / 8;
/// The longest part of a file that is asked for at once while nothing is resident. Larger parts could have many
/// resident pages, which the kernel counts one by one.
const COLD: u64 = 32 << 20;
/// The least bytes that the kernel is taken to read ahead.
const READAHEAD: u64 = 512 << 10;
/// The number of calls of cachestat(2) for parts of which no read is seen. They take 4 to 8 ms.
const UNSEEN: u32 = 1 << 14;
/// The number of calls when a file is opened, for what follows the first window while nothing is resident.
const FOLLOWING: u32 = 64;

/// A file that is not surveyed to its end.
struct Entry {
    /// The number of the opening of the file, which is different for each. 0 if there is no file.
    opened: AtomicU64,
    /// The device and the inode number.
    id: [AtomicU64; 2],
    /// The offset after the last page when the file was opened. Pages that are added later were sent then.
    end: AtomicU64,
    /// All pages before this offset were surveyed.
    surveyed: AtomicU64,
    /// The position of the descriptor, perhaps.
    position: AtomicU64,
}

static FILES: [Entry; 1024] = [const {
    Entry {
        opened: AtomicU64::new(0),
        id: [const { AtomicU64::new(0) }; 2],
        end: AtomicU64::new(0),
        surveyed: AtomicU64::new(0),
        position: AtomicU64::new(0),
    }
}; 1024];
/// True once there was a file.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// The [`key`]s of the opening and the number of windows that were surveyed last. A window that is surveyed twice
/// counts once: `nowait run` takes the first survey.
static SURVEYED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// The end of a walk over windows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// It surveys the first window, and the next ones up to one of which a page is resident.
    Resident,
    /// It surveys them all, with at most this number of calls.
    Calls(u32),
}

fn entry(fd: c_int) -> Option<&'static Entry> {
    let entry = FILES.get(usize::try_from(fd).ok()?)?;
    (entry.opened.load(Ordering::Acquire) != 0).then_some(entry)
}

/// The channel and the file of a descriptor whose file is not surveyed to its end.
fn found(fd: c_int) -> Option<(&'static Channel, &'static Entry)> {
    if !are_left() {
        return None;
    }
    let entry = entry(fd)?;
    Some((surveys()?, entry))
}

/// Surveys the first window of a file whose event was sent, and remembers the file if others are left. All pages before
/// `start` are resident.
#[inline(never)]
pub fn opened(survey: &Survey<'_>, start: u64) {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let (file, number) = (&survey.file, COUNT.fetch_add(1, Ordering::Relaxed));
    let end = file.end();
    survey.tell_range(end..u64::MAX);
    let surveyed = survey.walk(number, start..end, Until::Resident);
    if surveyed == end {
        return;
    }
    match FILES.get(file.fd.as_raw_fd().unsigned_abs() as usize) {
        Some(entry) => {
            entry.set(number, file.id, [end, surveyed, 0]);
            IS_USED.store(true, Ordering::Relaxed);
        }
        None => drop(survey.walk(number, surveyed..end, Until::Calls(UNSEEN))),
    }
}

/// Returns true if a descriptor has a file that is not surveyed to its end.
pub fn contains(fd: c_int) -> bool {
    are_left() && entry(fd).is_some()
}

/// The descriptor is closed, or is that of another file.
pub fn remove(fd: c_int) {
    // A child of vfork(2) closes its own.
    if let Some((_, entry)) = found(fd) {
        entry.opened.store(0, Ordering::Relaxed);
    }
}

/// `new` is a duplicate of a descriptor.
pub fn duplicated(fd: c_int, new: c_int) {
    if let Some((_, entry)) = found(fd)
        && fd != new
        && let Some(to) = usize::try_from(new).ok().and_then(|new| FILES.get(new))
    {
        let load = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let id = (load(&entry.id[0]), load(&entry.id[1]));
        let numbers = [&entry.end, &entry.surveyed, &entry.position].map(load);
        to.set(load(&entry.opened), id, numbers);
    }
}

/// The program has changed the position of a descriptor.
pub fn moved(fd: c_int, position: i64) {
    if are_left()
        && let (Some(entry), Ok(position)) = (entry(fd), u64::try_from(position))
    {
        entry.position.store(position, Ordering::Relaxed);
    }
}

/// The program is about to read or write `len` bytes at the position of a descriptor.
#[inline]
pub fn enters(fd: c_int, len: usize) {
    if let Some((channel, entry)) = found(fd) {
        system_calls::with_errno(|| entry.enters(channel, fd, len as u64));
    }
}

/// The program is about to read or write `len` bytes at an offset, or at the position if that is -1.
#[inline]
pub fn enters_at(fd: c_int, offset: i64, len: usize) {
    if let Some((channel, entry)) = found(fd) {
        system_calls::with_errno(|| match u64::try_from(offset) {
            Ok(start) => {
                let range = start..start.saturating_add(len as u64);
                entry.survey(channel, fd, range, u32::MAX);
            }
            Err(_) => entry.enters(channel, fd, len as u64),
        });
    }
}

/// The program is about to map a part of a file.
#[inline]
pub fn is_mapped(fd: c_int, offset: i64, len: usize) {
    if let Some((channel, entry)) = found(fd)
        && let Ok(offset) = u64::try_from(offset)
    {
        // A fault also reads what is before the page.
        let start = offset.saturating_sub(ahead(channel));
        let range = start..offset.saturating_add(len as u64);
        system_calls::with_errno(|| entry.survey(channel, fd, range, UNSEEN));
    }
}

/// The program is about to read a file in a way that is not seen, or at an offset that is not known.
pub fn is_read_unseen(fd: c_int) {
    if let Some((channel, entry)) = found(fd) {
        system_calls::with_errno(|| entry.survey(channel, fd, 0..u64::MAX, UNSEEN));
    }
}

/// Returns true if there was a file that is not surveyed to its end.
pub fn are_left() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// The program is about to send descriptors to another process, or to read files in a way that is not seen.
pub fn are_sent() {
    if are_left() {
        (0..)
            .take(FILES.len())
            .filter(|fd| entry(*fd).is_some())
            .for_each(is_read_unseen);
    }
}

/// The greatest number of bytes behind the end of a read that the kernel may have read when the read returns: two
/// windows of its own, which are twice as long after POSIX_FADV_SEQUENTIAL.
fn ahead(channel: &Channel) -> u64 {
    channel.readahead().saturating_mul(4).clamp(READAHEAD, COLD)
}

impl Entry {
    fn set(&self, opened: u64, id: (u64, u64), [end, surveyed, position]: [u64; 3]) {
        self.opened.store(0, Ordering::Relaxed);
        self.id[0].store(id.0, Ordering::Relaxed);
        self.id[1].store(id.1, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.surveyed.store(surveyed, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
        self.opened.store(opened, Ordering::Release);
    }

    /// Surveys the windows of the next `len` bytes. Most reads are within windows that were surveyed: then there is
    /// one system call.
    #[inline(never)]
    fn enters(&self, channel: &'static Channel, fd: c_int, len: u64) {
        // SAFETY: the descriptor is used in this call only.
        let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
        let surveyed = self.surveyed.load(Ordering::Relaxed);
        let last = surveyed.checked_sub(len.saturating_add(ahead(channel)));
        if last.is_some_and(|last| is_after(descriptor, last) == Some(false)) {
            return;
        }
        if let Some(start) = self.position(descriptor) {
            let range = start..start.saturating_add(len);
            self.survey(channel, fd, range, u32::MAX);
        }
    }

    fn is_of(&self, id: (u64, u64)) -> bool {
        let [device, inode] = &self.id;
        (
            device.load(Ordering::Relaxed),
            inode.load(Ordering::Relaxed),
        ) == id
    }

    /// The position of the descriptor. It may be another one than that of the last call: other processes have it, too.
    fn position(&self, fd: BorrowedFd<'_>) -> Option<u64> {
        let guess = self.position.load(Ordering::Relaxed);
        let is_right = !is_after(fd, guess)? && (guess == 0 || is_after(fd, guess - 1)?);
        if is_right {
            return Some(guess);
        }
        position(fd, 0, self.end.load(Ordering::Relaxed))
    }

    /// Surveys the windows of a range, and those that the kernel may read ahead.
    #[inline(never)]
    fn survey(&self, channel: &'static Channel, fd: c_int, range: Range<u64>, calls: u32) {
        let number = self.opened.load(Ordering::Acquire);
        let (end, surveyed) = (&self.end, &self.surveyed);
        let (end, before) = (
            end.load(Ordering::Relaxed),
            surveyed.load(Ordering::Relaxed),
        );
        let last = range.end.saturating_add(ahead(channel)).min(end);
        if number == 0 || last <= before || range.start >= end {
            return;
        }
        let first = (range.start / WINDOW * WINDOW).max(before);
        let last = last.next_multiple_of(WINDOW).min(end);
        // SAFETY: the descriptor is used in this call only.
        let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
        let survey = match Survey::new(channel, descriptor) {
            Some(survey) if self.is_of(survey.file.id) => survey,
            // The number was closed in another way.
            _ => return self.opened.store(0, Ordering::Relaxed),
        };
        let reached = survey.walk(number, first..last, Until::Calls(calls));
        if first == before {
            surveyed.fetch_max(reached, Ordering::Relaxed);
        }
        if first == before && reached >= end {
            self.opened.store(0, Ordering::Relaxed);
        }
    }
}

impl Survey<'_> {
    /// Surveys the windows of a range, and returns the end of the last one. Tells of pages that are not resident.
    #[inline(never)]
    fn walk(&self, opened: u64, range: Range<u64>, until: Until) -> u64 {
        let (mut start, mut len, mut calls) = (range.start, WINDOW, 0_u32);
        let most = match until {
            Until::Resident => FOLLOWING,
            Until::Calls(calls) => calls,
        };
        while start < range.end && calls < most {
            let part = start..range.end.min((start / WINDOW * WINDOW).saturating_add(len));
            calls = calls.saturating_add(1);
            if len > WINDOW && self.file.resident(part.clone()) != Some(0) {
                len = WINDOW;
                match until {
                    Until::Resident => break,
                    Until::Calls(_) => continue,
                }
            }
            let is_cold = match len {
                WINDOW if is_surveyed(opened, start) => Some(false),
                WINDOW => self.survey_window(&part, &mut calls),
                _ => Some(true),
            };
            let Some(is_cold) = is_cold else { break };
            start = part.end;
            // While nothing is resident, ever longer parts are asked for.
            if is_cold {
                self.tell_range(part.clone());
                len = (2 * len).min(COLD);
            }
            // Another thread that reads the window now must not do so before the window was sent.
            mark(opened, &part);
            if !is_cold && until == Until::Resident {
                break;
            }
        }
        start
    }

    /// Surveys a window, and sends it if some of its pages are resident and others are not. Returns true if none
    /// is resident, and `None` if the kernel does not answer.
    #[inline(always)]
    fn survey_window(&self, window: &Range<u64>, calls: &mut u32) -> Option<bool> {
        let pages = ((window.end - window.start) / self.file.page) as usize;
        // The bits are not on the stack, which may be small.
        let missing = path::with_memory(|memory| {
            let bits = &mut memory[..BITS];
            bits.fill(0);
            let missing = self.file.missing(window, bits, calls)?;
            if missing > 0 && missing < pages {
                self.tell_part(window.clone(), &bits[..pages.div_ceil(8)]);
            }
            Some(missing)
        })??;
        Some(missing == pages)
    }
}

fn place(opened: u64, window: u64) -> (&'static AtomicU64, u64) {
    let mark = key((opened, window));
    (&SURVEYED[(mark >> 52) as usize], mark)
}

fn is_surveyed(opened: u64, start: u64) -> bool {
    let (place, mark) = place(opened, start / WINDOW);
    place.load(Ordering::Acquire) == mark
}

/// Notes that all windows of a part were surveyed.
fn mark(opened: u64, part: &Range<u64>) {
    for window in part.start / WINDOW..part.end.div_ceil(WINDOW) {
        let (place, mark) = place(opened, window);
        place.store(mark, Ordering::Release);
    }
}
