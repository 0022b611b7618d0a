//! A call at a file's position, as made by a worker.

use std::io;

use rustix::fs::SeekFrom;

use crate::buffer::{IoBufExt, Limit, downcast, downcast_source};
use crate::handle::Handle;
use crate::op::{Operation, Read, Step, Write};
use crate::sys::Errno;
use crate::sys::retry;

/// A call that uses or moves the kernel's position of a file.
#[derive(Debug)]
pub(super) struct Transfer {
    call: Call,
    /// The number of unread bytes. The position is first moved back by it.
    back: usize,
}

#[derive(Debug)]
enum Call {
    Read(Read),
    Write(Write),
    Seek(io::SeekFrom),
    SetLen(u64),
}

/// A call that has ended, with the memory it used.
#[derive(Debug)]
pub(super) enum Ended {
    Read(io::Result<()>, Vec<u8>),
    Write(io::Result<()>, Vec<u8>),
    /// The new position.
    Seek(io::Result<u64>),
    SetLen(io::Result<()>),
}

impl Transfer {
    /// read(2) of at most `most` bytes.
    pub(super) fn read(handle: &Handle, room: Vec<u8>, most: usize) -> Transfer {
        Call::Read(read(handle, room, most)).after(0)
    }

    /// write(2) of all the bytes.
    pub(super) fn write(handle: &Handle, bytes: Vec<u8>, back: usize) -> Transfer {
        Call::Write(write(handle, bytes)).after(back)
    }

    /// lseek(2).
    pub(super) fn seek(to: io::SeekFrom, back: usize) -> Transfer {
        // Only a relative seek depends on the position.
        let back = match to {
            io::SeekFrom::Current(_) => back,
            _ => 0,
        };
        Call::Seek(to).after(back)
    }

    /// ftruncate(2). It does not move the position.
    pub(super) fn set_len(size: u64, back: usize) -> Transfer {
        Call::SetLen(size).after(back)
    }

    /// The result of the call if no worker could make it.
    pub(super) fn unmade(&self) -> fn(io::Error) -> Ended {
        match self.call {
            Call::Read(_) => |error| Ended::Read(Err(error), Vec::new()),
            Call::Write(_) => |error| Ended::Write(Err(error), Vec::new()),
            Call::Seek(_) => |error| Ended::Seek(Err(error)),
            Call::SetLen(_) => |error| Ended::SetLen(Err(error)),
        }
    }

    /// Makes the call. Waits for the device and for the position lock.
    pub(super) fn make(self, handle: &Handle) -> Ended {
        let Transfer { call, back } = self;
        let back = back.cast_signed() as i64;
        let ready = match call {
            Call::Seek(_) => Ok(0),
            _ if back == 0 => Ok(0),
            _ => rustix::fs::seek(handle, SeekFrom::Current(-back)),
        };
        match call {
            Call::Read(mut op) => {
                let result = ready.and_then(|_| at_position(handle, &mut op));
                Ended::of_read(result.map_err(io::Error::from), op)
            }
            Call::Write(mut op) => {
                let result = ready.and_then(|_| to_its_end(&mut op));
                Ended::of_write(result.map_err(io::Error::from), op)
            }
            Call::Seek(to) => {
                // One lseek(2). A clone may have moved the position since the bytes were read. Then
                // a seek by the unread bytes alone may lead to a position before the file.
                let to = match to {
                    io::SeekFrom::Start(to) => Ok(SeekFrom::Start(to)),
                    io::SeekFrom::End(by) => Ok(SeekFrom::End(by)),
                    io::SeekFrom::Current(by) => by
                        .checked_sub(back)
                        .map(SeekFrom::Current)
                        .ok_or(Errno::INVAL),
                };
                let sought = to.and_then(|to| rustix::fs::seek(handle, to));
                Ended::Seek(sought.map_err(io::Error::from))
            }
            Call::SetLen(size) => {
                let set = || rustix::fs::ftruncate(handle, size);
                let set = ready.and_then(|_| retry::interrupted(set));
                Ended::SetLen(set.map_err(io::Error::from))
            }
        }
    }
}

impl Call {
    fn after(self, back: usize) -> Transfer {
        Transfer { call: self, back }
    }
}

impl Ended {
    pub(super) fn of_read(result: io::Result<usize>, op: Read) -> Ended {
        let buffer = downcast::<Limit<Vec<u8>>>(op.into_buffer());
        let room = buffer.map(Limit::into_inner).unwrap_or_default();
        Ended::Read(result.map(drop), room)
    }

    pub(super) fn of_write(result: io::Result<usize>, op: Write) -> Ended {
        let bytes = downcast_source::<Vec<u8>>(op.into_source()).unwrap_or_default();
        let result = match result {
            Ok(n) if n < bytes.len() => Err(io::ErrorKind::WriteZero.into()),
            other => other.map(drop),
        };
        Ended::Write(result, bytes)
    }
}

/// Reads at most `most` bytes into memory that the operation owns, even if the future is dropped.
/// At an offset, too, an error after some bytes is returned by the next read.
pub(super) fn read(handle: &Handle, mut room: Vec<u8>, most: usize) -> Read {
    room.reserve(most);
    Read::stream(handle, Box::new(room.limit(most))).or_part()
}

/// Writes all of the bytes.
pub(super) fn write(handle: &Handle, bytes: Vec<u8>) -> Write {
    Write::stream(handle, Box::new(bytes)).all()
}

/// read(2). For an O_DIRECT file that permits unaligned reads: pread(2) and lseek(2), because only
/// a read at an offset can use an aligned buffer.
fn at_position(handle: &Handle, op: &mut Read) -> Result<usize, Errno> {
    if handle.bounce_alignment().is_none() {
        return to_its_end(op);
    }
    let from = rustix::fs::tell(handle)?;
    op.at(from);
    let n = to_its_end(op)?;
    rustix::fs::seek(handle, SeekFrom::Start(from + n as u64))?;
    Ok(n)
}

/// Runs an operation to its end by its blocking form.
fn to_its_end(op: &mut impl Operation) -> Result<usize, Errno> {
    loop {
        let result = retry::interrupted(|| op.run());
        if let Step::Done(done) = op.settle(result) {
            return done;
        }
    }
}
