//! Bytes that were read at a file's position and not yet returned. The kernel's position is past them.

use std::fmt;

use ::tokio::io::ReadBuf;

#[derive(Default)]
pub(super) struct Unread {
    bytes: Vec<u8>,
    taken: usize,
}

impl Unread {
    pub(super) fn new(bytes: Vec<u8>) -> Unread {
        Unread { bytes, taken: 0 }
    }

    /// The number of unread bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Discards the bytes, and returns their memory.
    pub(super) fn take_room(&mut self) -> Vec<u8> {
        let mut room = std::mem::take(self).bytes;
        room.clear();
        room
    }

    /// Discards the bytes and keeps the memory.
    pub(super) fn forget(&mut self) {
        *self = Unread::new(self.take_room());
    }

    /// Moves as many bytes as `dst` has room for. Returns their number.
    pub(super) fn give(&mut self, dst: &mut ReadBuf<'_>) -> usize {
        let n = self.len().min(dst.remaining());
        dst.put_slice(&self.bytes[self.taken..][..n]);
        self.taken += n;
        n
    }
}

impl fmt::Debug for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
