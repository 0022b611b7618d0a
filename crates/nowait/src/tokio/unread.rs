//! Bytes that were read at a file's position and not yet returned. The kernel's position is past
//! them.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_once_and_in_order() {
        let mut unread = Unread::new(b"unread bytes".to_vec());
        let mut room = [std::mem::MaybeUninit::uninit(); 12];
        let mut dst = ReadBuf::uninit(&mut room);
        for (n, left) in [(5, 7), (0, 7), (7, 0), (0, 0)] {
            let mut part = dst.take(n);
            assert_eq!(unread.give(&mut part), n);
            let filled = part.filled().to_vec();
            dst.put_slice(&filled);
            assert_eq!((unread.len(), unread.is_empty()), (left, left == 0));
        }
        assert_eq!(dst.filled(), b"unread bytes");
        let room = unread.take_room();
        assert!(room.is_empty() && room.capacity() >= 12 && unread.is_empty());
        let mut unread = Unread::new(vec![1, 2, 3]);
        unread.forget();
        assert!(unread.is_empty() && unread.take_room().capacity() >= 3);
    }
}
