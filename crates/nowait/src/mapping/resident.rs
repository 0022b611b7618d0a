//! Borrowed bytes of a mapping.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use super::borrows::Borrow;
use super::frames::Frames;
use super::windows::Bytes;

/// Bytes of a mapped file, borrowed by [`Mapping::get`](super::Mapping::get). They stay in memory
/// and do not change until this value is dropped.
///
/// It stays in its thread, so that borrowing needs no atomic operation.
/// [`Mapping::get_send`](super::Mapping::get_send) is for other threads, and for futures that move.
///
/// In a forked child it is empty.
///
/// ```compile_fail,E0277
/// fn to_another_thread(bytes: nowait::mapping::Resident<'_>) {
///     std::thread::scope(|s| s.spawn(move || bytes.len()).join()).unwrap();
/// }
/// ```
#[must_use]
pub struct Resident<'a> {
    bytes: Bytes,
    _first: Borrow,
    /// Of ranges that are not in one window.
    _others: Option<Box<[Borrow]>>,
    mapping: PhantomData<&'a [u8]>,
}

// SAFETY: shared references read bytes that do not change.
unsafe impl Sync for Resident<'_> {}

impl<'a> Resident<'a> {
    /// The bytes, all of which lie in the borrowed windows of a mapping that lives for `'a`.
    #[inline(always)]
    pub(super) fn new(bytes: Bytes, first: Borrow, others: Option<Box<[Borrow]>>) -> Resident<'a> {
        Resident {
            bytes,
            _first: first,
            _others: others,
            mapping: PhantomData,
        }
    }
}

impl Deref for Resident<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the windows are borrowed, and the mapping lives for `'a`.
        unsafe { self.bytes.get() }
    }
}

/// Bytes of a mapped file, borrowed by [`Mapping::load`](super::Mapping::load). They stay in memory
/// and do not change until this value is dropped, in any thread.
///
/// In a forked child it is empty.
#[must_use]
pub struct SendResident<'a> {
    bytes: Bytes,
    held: Held,
    mapping: PhantomData<&'a [u8]>,
}

// SAFETY: it is a shared slice of bytes that do not change, and any thread may return the frames.
unsafe impl Send for SendResident<'_> {}
// SAFETY: as above.
unsafe impl Sync for SendResident<'_> {}

impl<'a> SendResident<'a> {
    /// The bytes, all of which lie in the held windows of a mapping that lives for `'a`.
    pub(super) fn new(bytes: Bytes, held: Held) -> SendResident<'a> {
        SendResident {
            bytes,
            held,
            mapping: PhantomData,
        }
    }

    /// The same bytes, for any lifetime.
    ///
    /// # Safety
    /// The caller keeps the mapping until the result is dropped.
    pub(super) unsafe fn extend<'b>(self) -> SendResident<'b> {
        SendResident::new(self.bytes, self.held)
    }
}

impl Deref for SendResident<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the windows are held, and the mapping lives for `'a`.
        unsafe { self.bytes.get() }
    }
}

impl AsRef<[u8]> for Resident<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsRef<[u8]> for SendResident<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Resident<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resident")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SendResident<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendResident")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Frames that are held until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    all: Arc<Frames>,
    frames: Vec<usize>,
}

impl Held {
    pub(super) fn new(all: &Arc<Frames>) -> Held {
        Held {
            all: all.clone(),
            frames: Vec::new(),
        }
    }

    /// Holds a frame that is borrowed.
    pub(super) fn hold(&mut self, frame: usize) {
        self.all.borrows.hold(frame);
        self.frames.push(frame);
    }

    /// Takes over a frame that is held already.
    pub(super) fn take_over(&mut self, frame: usize) {
        self.frames.push(frame);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.frames
            .iter()
            .for_each(|frame| self.all.borrows.release(*frame));
    }
}
