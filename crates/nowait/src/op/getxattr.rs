//! getxattr: reads one extended attribute of a file.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::AsFd;

use io_uring::{opcode, squeue};

use super::operation::{Operation, Registered, Step};
use crate::handle::Handle;
use crate::sys::Errno;

/// Reads an extended attribute: fgetxattr(2), or getxattr(2) by path.
///
/// Fails with ERANGE if the value is larger than `room`, and with ENODATA if there is no such
/// attribute. With a `room` of 0 the result is the size of the value.
#[derive(Debug)]
pub struct Getxattr {
    file: File,
    name: CString,
    value: Vec<u8>,
    room: u32,
}

/// The largest possible size of an attribute's value, in bytes (`XATTR_SIZE_MAX`).
const LARGEST: u32 = 64 << 10;

#[derive(Debug)]
enum File {
    Open(Handle),
    Path(CString),
}

impl Getxattr {
    /// Reads up to `room` bytes of an attribute of an open file. No value is larger than 64 KiB,
    /// and no more is allocated.
    pub fn new(handle: &Handle, name: CString, room: usize) -> Getxattr {
        Getxattr::of(File::Open(handle.clone()), name, room)
    }

    /// Reads up to `room` bytes of an attribute of the file at `path`. A symbolic link is followed.
    pub fn path(path: CString, name: CString, room: usize) -> Getxattr {
        Getxattr::of(File::Path(path), name, room)
    }

    fn of(file: File, name: CString, room: usize) -> Getxattr {
        // The kernel limits a larger size to this as well.
        let room = u32::try_from(room).map_or(LARGEST, |room| room.min(LARGEST));
        Getxattr {
            file,
            name,
            value: Vec::with_capacity(room as usize),
            room,
        }
    }

    /// Returns the value.
    pub fn into_value(self) -> Vec<u8> {
        self.value
    }
}

impl Operation for Getxattr {
    const OPCODE: u8 = opcode::FGetXattr::CODE;
    const NAME: &'static str = "getxattr";

    fn handle(&self) -> Option<&Handle> {
        match &self.file {
            File::Open(handle) => Some(handle),
            File::Path(_) => None,
        }
    }

    fn sqe(&mut self, known: &Registered<'_>) -> squeue::Entry {
        let (name, room) = (self.name.as_ptr(), self.room);
        let value = self.value.as_mut_ptr().cast();
        match &self.file {
            File::Open(handle) => {
                opcode::FGetXattr::new(known.fd(handle), name, value, room).build()
            }
            File::Path(path) => opcode::GetXattr::new(name, value, path.as_ptr(), room).build(),
        }
    }

    fn run(&mut self) -> Result<usize, Errno> {
        self.value.clear();
        if self.room == 0 {
            return match &self.file {
                File::Open(handle) => rustix::fs::fgetxattr_query(handle.as_fd(), &self.name),
                File::Path(path) => rustix::fs::getxattr_query(path, &self.name),
            };
        }
        let spare = &mut self.value.spare_capacity_mut()[..self.room as usize];
        match &self.file {
            File::Open(handle) => rustix::fs::fgetxattr(handle.as_fd(), &self.name, spare),
            File::Path(path) => rustix::fs::getxattr(path, &self.name, spare),
        }
        .map(|(filled, _)| filled.len())
    }

    fn settle(&mut self, result: Result<usize, Errno>) -> Step {
        if let Ok(n) = result {
            // SAFETY: the kernel wrote `n` bytes into the vector's capacity. With a room of 0 it
            // only returns the size.
            unsafe { self.value.set_len(n.min(self.room as usize)) };
        }
        Step::Done(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_as_long_as_the_kernel_says() {
        let asked = |room| Getxattr::path(c"/".into(), c"user.key".into(), room);
        let mut op = asked(10);
        let value = op.value.as_mut_ptr();
        let mut moved = Box::new(op);
        // SAFETY: there is room for ten bytes.
        unsafe { value.copy_from_nonoverlapping(b"value".as_ptr(), 5) };
        assert!(matches!(moved.settle(Ok(5)), Step::Done(Ok(5))));
        assert_eq!(moved.into_value(), b"value");
        // With no room, only the size is told.
        let mut sized = asked(0);
        assert!(matches!(sized.settle(Ok(5)), Step::Done(Ok(5))));
        assert_eq!(sized.into_value(), b"");
    }
}
