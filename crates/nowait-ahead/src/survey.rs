//! Surveys: which pages of a file are resident when the program opens it. `nowait run
//! --keep-cache` evicts the others.
//!
//! The system calls of a survey are made in the program, before it can read the file, and before it
//! closes a small one. None is made in a process that has a filter of system calls, or may have one.
//! When a file is opened, only its first window is surveyed, and what follows while none of it is
//! resident; see `windows`.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::FILE;
use nowait_ahead_channel::{Channel, EvictedFiles, Listening, Place};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::file::File;
use crate::named::Named;
use crate::open_files::{self, OpenFile};
use crate::residency::evict;
use crate::statx::statx;
use crate::survey_events::{self, Survey, is_on, surveys, waited_for_room};
use crate::system_calls;
use crate::thread::thread;
use crate::windows;

/// A file of this size is counted in one call.
const SMALL: u64 = 8 << 20;

/// The pages of a file that are not resident.
#[derive(Clone, Copy)]
struct Found {
    /// See [`nowait_ahead_channel::Event::pages`].
    pages: u64,
    /// The number of resident pages, if it is known.
    resident: Option<u64>,
}

/// The result of the first look at a file.
enum Look {
    /// These pages of the file are not resident.
    All(Found),
    /// All pages are resident, or the file has none.
    Nothing,
    /// The file is to be surveyed in windows from this offset on. All before is resident.
    Windows(u64),
}

/// Begins to survey files.
pub fn begin(channel: Channel) {
    survey_events::begin(channel);
    if system_calls::are_allowed() {
        inherited();
        open_files::share_all();
    } else {
        survey_events::is_filtered();
    }
}

/// Surveys files that the shell, or the caller of `nowait run`, has opened. A shell gives numbers
/// below 10. The C library has streams of the first three.
fn inherited() {
    for fd in 0..10 {
        // SAFETY: the descriptor is used in this call only.
        if let Ok(flags) = fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) })
            && !flags.contains(OFlags::PATH)
        {
            let flags = flags.bits().cast_signed();
            // SAFETY: there is no path.
            unsafe { opened(fd, Named::here(null()), flags, open_files::shared()) };
            windows::is_read_unseen(fd);
        }
    }
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
    windows::remove(fd);
    system_calls::with_errno(|| {
        // SAFETY: the C library has just returned this descriptor.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if waited_for_room(channel)
            && let Some(surveyed) = Survey::new(channel, fd)
        {
            // SAFETY: the caller's promise.
            let place = unsafe { file.place() };
            let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
            surveyed.survey(place, is_written, shared);
        }
    });
}

/// The program is about to close a descriptor. Evicts a small file that only this descriptor has. A file that is being read ahead
/// would come back: `nowait run` evicts it, if it knows of the survey.
pub fn closes(fd: c_int) {
    windows::remove(fd);
    if let Some(file) = open_files::remove(fd)
        && let Some(channel) = surveys()
        && !channel.is_listening(Listening::Files)
        && channel.is_claimed(file.id, file.token)
    {
        system_calls::with_errno(|| {
            // SAFETY: the program is about to close this descriptor.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if let Some(open) = Survey::new(channel, fd)
                && open.file.id == file.id
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

/// A number that no other claim has. `None` in an old C library, where threads have no ID.
fn token(thread: u32) -> Option<u64> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    (thread != 0).then_some(u64::from(thread) << 32 | u64::from(count))
}

impl<'a> Survey<'a> {
    /// `None` if it is no regular file.
    pub fn new(channel: &'static Channel, fd: BorrowedFd<'a>) -> Option<Survey<'a>> {
        Some(Survey {
            channel,
            thread: thread(),
            file: File::new(fd)?,
        })
    }

    /// Surveys the file, and sends the pages that are not resident. A file that is written may
    /// become longer: pages after its end are not resident.
    fn survey(&self, place: Option<Place<'_>>, is_written: bool, shared: u32) {
        let is_new = is_written && self.file.size == 0;
        let token = token(self.thread).filter(|_| !is_new);
        let is_claimed = token.is_some_and(|token| self.channel.claim(self.file.id, token));
        let token = token.filter(|_| is_claimed);
        match self.look(is_written) {
            Look::Nothing => {
                if let Some(token) = token {
                    self.channel.release(self.file.id, token);
                }
            }
            Look::Windows(start) => {
                if self.tell(place, 0).is_some() {
                    windows::opened(self, start);
                }
            }
            Look::All(Found { pages, resident }) => {
                let event = self.tell(place, pages);
                if let (Some(event), Some(token), Some(resident)) = (event, token, resident)
                    && !is_written
                {
                    let id = self.file.id;
                    let file = OpenFile {
                        event,
                        token,
                        id,
                        pages,
                        resident,
                    };
                    open_files::insert(self.file.fd.as_raw_fd(), &file, shared);
                }
            }
        }
    }

    /// Looks at a file without windows, if it is small enough.
    fn look(&self, is_written: bool) -> Look {
        let (file, end) = (&self.file, self.file.end());
        let all = |pages, resident| Look::All(Found { pages, resident });
        if file.size == 0 {
            return match is_written {
                true => all(u64::MAX, None),
                false => Look::Nothing,
            };
        }
        if end > SMALL {
            return Look::Windows(0);
        }
        let (count, resident) = (end / file.page, file.resident(0..end));
        match resident {
            Some(0) => return all(u64::MAX, resident),
            Some(resident) if resident >= count && !is_written => return Look::Nothing,
            Some(resident) if resident >= count && count >= u64::from(u64::BITS) => {
                return Look::Windows(end);
            }
            _ if count >= u64::from(u64::BITS) => return Look::Windows(0),
            _ => {}
        }
        let Some(pages) = self.missing_of_few(end) else {
            return Look::Nothing;
        };
        match is_written || pages != 0 {
            true => all(
                pages | u64::MAX << count,
                Some(count - u64::from(pages.count_ones())),
            ),
            false => Look::Nothing,
        }
    }

    /// The pages that are not resident in a file of less than 64 pages.
    #[inline(never)]
    fn missing_of_few(&self, end: u64) -> Option<u64> {
        let mut bits = [0; 8];
        self.file.missing(&(0..end), &mut bits, &mut 0)?;
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
                    u64::from(len) * self.file.page
                };
                let offset = u64::from(start) * self.file.page;
                evict(
                    self.file.fd.as_raw_fd(),
                    offset.cast_signed(),
                    len.cast_signed(),
                );
            }
            start = end.max(start + 1);
        }
        if let Some(left) = self.left()
            && left <= file.resident
            && self.channel.release(file.id, file.token)
            && self.channel.withdraw(file.event)
        {
            let bytes = |pages: u64| (pages * self.file.page).min(self.file.size);
            self.channel.count_evicted(EvictedFiles {
                mount: self.file.mount,
                files: 1,
                before: bytes(file.resident),
                after: bytes(left),
            });
        }
    }

    /// The resident pages of a small file.
    fn left(&self) -> Option<u64> {
        let file = &self.file;
        let end = file.end().max(file.page);
        if let Some(resident) = file.resident(0..end) {
            return Some(resident);
        }
        // The file may have grown.
        let range = Some(0..end).filter(|it| it.end <= SMALL)?;
        let missing = file.missing(&range, &mut [], &mut 0)?;
        Some(end / file.page - missing as u64)
    }
}
