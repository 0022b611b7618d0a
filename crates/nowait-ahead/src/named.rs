//! The file of a call, as the program names it.

use std::ffi::{CStr, c_char, c_int};

use nowait_ahead_channel::Place;

/// The file.
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

    /// The place of the file. `None` if the path does not name the file.
    ///
    /// # Safety
    /// A system call has just accepted the path.
    pub unsafe fn place(&self) -> Option<Place<'_>> {
        if self.path.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { CStr::from_ptr(self.path) }.to_bytes();
        let is_relative = self.dir >= 0 && !path.starts_with(b"/");
        let fd = if is_relative { self.dir } else { -1 };
        Some(Place { fd, path })
    }

    /// The directory of the file. `None` if the path does not name the file.
    ///
    /// # Safety
    /// A system call has just accepted the path.
    pub unsafe fn directory(&self) -> Option<Place<'_>> {
        // SAFETY: the caller's promise.
        let Place { fd, path } = unsafe { self.place() }?;
        let name = path.iter().rposition(|&byte| byte == b'/');
        let path = &path[..name.map_or(0, |slash| slash.max(1))];
        Some(Place { fd, path })
    }
}
