//! The channel for surveys, and the events of a file and its pages.

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nowait_ahead_channel::{Channel, Kind, Listening, Missing, Place, key};
use rustix::thread::{Timespec, nanosleep};

use crate::file::File;
use crate::named::Named;
use crate::path;
use crate::statx::statx;
use crate::system_calls;
use crate::thread::thread;

static CHANNEL: OnceLock<Channel> = OnceLock::new();
/// The number of pauses that this process still makes for `nowait run`.
static PAUSES: AtomicU32 = AtomicU32::new(100);
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// The [`key`] of the directory that was sent last.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A file that is surveyed, and the channel of its events.
pub struct Survey<'a> {
    pub channel: &'static Channel,
    pub thread: u32,
    pub file: File<'a>,
}

/// Begins to tell.
pub fn begin(channel: Channel) {
    if channel.is_listening(Listening::Directories) {
        channel.tell(Kind::Started, thread(), Place::NONE, (0, 0), 0);
    }
    let _ = CHANNEL.set(channel);
}

/// The process has a filter of system calls, or is about to install one.
pub fn is_filtered() {
    if let Some(channel) = CHANNEL.get()
        && channel.is_listening(Listening::Directories)
    {
        channel.tell(Kind::Filtered, thread(), Place::NONE, (0, 0), 0);
    }
}

/// Returns true if `nowait run` keeps the page cache.
pub fn is_on() -> bool {
    let channel = CHANNEL.get();
    channel.is_some_and(|channel| channel.is_listening(Listening::Advice))
}

/// The channel, if files are surveyed. In a control group they need no survey.
pub fn surveys() -> Option<&'static Channel> {
    let channel = CHANNEL.get()?;
    let is_on = channel.is_listening(Listening::Directories) && system_calls::are_allowed();
    is_on.then_some(channel)
}

/// Sleeps for a moment, if the library may make system calls: if it surveys or learns, and the process has no filter of them. It goes on
/// at once otherwise. errno stays as it is.
pub fn pause() {
    if system_calls::are_allowed() {
        system_calls::with_errno(|| drop(nanosleep(&PAUSE)));
    } else {
        std::hint::spin_loop();
    }
}

/// The program unmounts a filesystem. The call is repeated if `nowait run` may have had a file open there.
pub fn unmounts(call: impl Fn() -> c_int) -> c_int {
    const TRIES: u32 = 500;
    // In a control group, too: files that are read ahead are evicted there.
    let is_wanted = |_: &&Channel| is_on() && system_calls::are_allowed();
    let opens = || CHANNEL.get().filter(is_wanted).map(Channel::opens);
    let mut before = opens();
    let mut result = call();
    for _ in 0..TRIES {
        let is_busy = result != 0 && system_calls::errno() == libc::EBUSY;
        let is_of_program = before.is_none_or(|opens| opens % 2 == 0) && before == opens();
        if !is_busy || is_of_program {
            break;
        }
        pause();
        before = opens();
        result = call();
    }
    result
}

/// Waits until `nowait run` has read older events. Returns false if it does not, or did not before.
#[inline(never)]
pub fn waited_for_room(channel: &Channel) -> bool {
    while !channel.has_room() {
        let left = PAUSES.load(Ordering::Relaxed);
        if left == 0 || !channel.may_pause() {
            return false;
        }
        PAUSES.store(left - 1, Ordering::Relaxed);
        // This is no cancellation point (pthreads(7)): the program has not yet got its descriptor.
        pause();
    }
    true
}

/// A file has got a name. errno stays as it is.
///
/// # Safety
/// A system call has just accepted the path.
#[inline(never)]
pub unsafe fn named(file: Named) {
    let Some(channel) = surveys() else { return };
    // SAFETY: the caller's promise.
    let Some(place) = (unsafe { file.place() }) else {
        return;
    };
    system_calls::with_errno(|| {
        let is_relative = !place.path.starts_with(b"/");
        let directory = is_relative.then(|| tell_directory(channel, place.fd));
        channel.tell_named(thread(), place, directory.unwrap_or(0));
    });
}

/// Tells of the path of a directory, unless it was the last one. The descriptor may be closed
/// when `nowait run` reads the event. Returns the [`key`] of the directory, or 0.
#[inline(never)]
fn tell_directory(channel: &Channel, directory: c_int) -> u64 {
    // SAFETY: the program has just used a path relative to this descriptor.
    let fd = unsafe { path::directory(directory) };
    let Some(id) = statx(fd, 0).map(|stat| stat.id) else {
        return 0;
    };
    if LAST.load(Ordering::Relaxed) != key(id) {
        path::with_memory(|path| {
            if let Some(path) = path::of(fd, path) {
                channel.tell_directory(thread(), path, id);
                LAST.store(key(id), Ordering::Relaxed);
            }
        });
    }
    key(id)
}

impl Survey<'_> {
    /// Tells that the file was opened. `pages` are those of [`nowait_ahead_channel::Event::pages`]. If the
    /// caller passed no path, the one of /proc/self/fd is sent. Returns the number of the event.
    pub fn tell(&self, place: Option<Place<'_>>, pages: u64) -> Option<u64> {
        match place {
            Some(place) => {
                let is_relative = !place.path.starts_with(b"/");
                let directory = is_relative.then(|| tell_directory(self.channel, place.fd));
                self.tell_at(place, directory.unwrap_or(0), pages)
            }
            None => self.tell_by_own_path(pages),
        }
    }

    #[inline(never)]
    fn tell_by_own_path(&self, pages: u64) -> Option<u64> {
        let told = path::with_memory(|path| {
            let path = path::of(self.file.fd, path).unwrap_or_default();
            self.tell_at(Place { fd: -1, path }, 0, pages)
        });
        told.flatten()
    }

    fn tell_at(&self, place: Place<'_>, directory: u64, pages: u64) -> Option<u64> {
        let file = (self.file.fd.as_raw_fd(), self.file.birth);
        let last = [directory, pages];
        self.channel
            .tell_surveyed(self.thread, place, self.file.id, file, last)
    }

    /// Tells of a part of which no page is resident.
    pub fn tell_range(&self, range: Range<u64>) {
        if !range.is_empty() {
            self.tell_part(range, &[]);
        }
    }

    /// Tells of a part with a bit for each page that is not resident.
    #[inline(never)]
    pub fn tell_part(&self, Range { start, end }: Range<u64>, pages: &[u8]) {
        let part = Missing { start, end, pages };
        if waited_for_room(self.channel) {
            self.channel.tell_missing(self.thread, self.file.id, part);
        }
    }
}
