//! nw_file: a descriptor with its hit history.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use libc::{off_t, size_t};
use nowait::buffer::UninitSlice;
use nowait::read::try_cached;
use nowait::{Handle, Mode};

use crate::guard::{Outcome, failed, get_mut, guard};
use crate::handle::{self, Closed, Slot};
use crate::rw::{descriptor, read_cached};

/// An open file of the program, with its hit history. The descriptor stays the program's.
pub struct nw_file(());

struct Inner {
    /// Operations have clones. This is the last one, so the descriptor is never closed by the
    /// library.
    handle: ManuallyDrop<Handle>,
}

impl handle::Handle for Inner {
    type InC = nw_file;

    fn closed() -> &'static Closed<Inner> {
        static CLOSED: Closed<Inner> = Closed::new();
        &CLOSED
    }
}

/// The handle of a file.
///
/// # Safety
/// As [`Slot::get`].
pub(crate) unsafe fn handle_of<'a>(file: *const nw_file) -> Outcome<&'a Handle> {
    // SAFETY: the caller's promise.
    unsafe { Slot::<Inner>::get(file) }.map(|file| &*file.handle)
}

/// Makes a file of an open descriptor, which stays the program's. It must stay open, and belong to
/// the same file, until nw_file_close. Returns 0 or −errno. See nw_file(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_file_open(fd: c_int, file: *mut *mut nw_file) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| unsafe { open(fd, None, file) })
}

/// As nw_file_open. Before a read of the file is tried, the kernel is asked if its range is cached, in
/// nw_file_pread_cached and in every engine. Sets FADV_RANDOM. See nw_file(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_file_open_strict(fd: c_int, file: *mut *mut nw_file) -> c_int {
    // SAFETY: the caller's promise.
    guard(|| unsafe { open(fd, Some(Mode::Strict), file) })
}

/// # Safety
/// The C program's promise: the manual page.
unsafe fn open(fd: c_int, mode: Option<Mode>, file: *mut *mut nw_file) -> Outcome<c_int> {
    // SAFETY: the caller's promise.
    let (place, borrowed) = unsafe { (get_mut(file)?, descriptor(fd)?) };
    // A number without an open file must not become an owned descriptor.
    // SAFETY: no memory is passed.
    if unsafe { libc::fcntl(borrowed.as_raw_fd(), libc::F_GETFD) } < 0 {
        return Err(libc::EBADF);
    }
    // SAFETY: the descriptor is open. `close` takes it out again, so it is not closed twice.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    let handle = Handle::try_new(owned, mode).map_err(|(error, fd)| {
        let _ = fd.into_raw_fd();
        failed(error)
    })?;
    *place = Slot::open(Inner {
        handle: ManuallyDrop::new(handle),
    });
    Ok(0)
}

/// Frees a file. Its descriptor stays open. Returns 0, or −EBUSY while operations on it are in
/// flight or a mapping of it exists. See nw_file(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_file_close(file: *mut nw_file) -> c_int {
    let close = |file: Inner| match ManuallyDrop::into_inner(file.handle).into_fd() {
        Ok(fd) => {
            let _ = fd.into_raw_fd();
            Ok(())
        }
        Err(handle) => {
            let handle = ManuallyDrop::new(handle);
            Err((libc::EBUSY, Inner { handle }))
        }
    };
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe { Slot::<Inner>::close(file, close) }.map(|()| 0))
}

/// The descriptor of a file, or −errno. See nw_file(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_file_fd(file: *const nw_file) -> c_int {
    // SAFETY: the C program's promise: the manual page.
    guard(|| unsafe { handle_of(file) }.map(|handle| handle.as_fd().as_raw_fd()))
}

/// As nw_pread_cached, if the file's history is in favour of a try, and counts the result in the
/// history. Returns NW_CACHED_SKIPPED if the read should not be tried: hand it over. See
/// nw_file(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nw_file_pread_cached(
    file: *const nw_file,
    buf: *mut c_void,
    len: size_t,
    offset: off_t,
    n: *mut size_t,
) -> c_int {
    guard(|| {
        // SAFETY: the C program's promise: the manual page.
        let handle = unsafe { handle_of(file)? };
        let read = |space: UninitSlice<'_>, offset| try_cached(handle, space, offset);
        // SAFETY: as above.
        unsafe { read_cached(buf, len, offset, n, read) }
    })
}
