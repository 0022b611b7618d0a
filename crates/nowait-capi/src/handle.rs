//! The memory of handles. It is used again for handles of the same type, and never for anything
//! else. So a use after close finds a closed handle, and not other data: it fails with EBADF,
//! unless a new handle has taken the place meanwhile.
//!
//! The list of closed handles is never waited for: a fork may have left it locked for ever. A
//! handle that finds it locked gets new memory, or is not used again.

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::guard::Outcome;

/// The memory of one handle.
pub struct Slot<T> {
    is_open: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

/// The closed handles of one type.
pub struct Closed<T: 'static>(Mutex<Vec<Address<T>>>);

struct Address<T: 'static>(&'static Slot<T>);

// SAFETY: a closed slot has no value.
unsafe impl<T> Send for Address<T> {}

/// A type of handles.
pub trait Handle: Sized + 'static {
    /// The type to which C has a pointer.
    type InC;

    /// The closed handles of this type.
    fn closed() -> &'static Closed<Self>;
}

impl<T> Closed<T> {
    pub const fn new() -> Closed<T> {
        Closed(Mutex::new(Vec::new()))
    }
}

impl<T: Handle> Slot<T> {
    /// Opens a handle.
    pub fn open(value: T) -> *mut T::InC {
        let free = T::closed()
            .0
            .try_lock()
            .ok()
            .and_then(|mut list| list.pop());
        let slot = free.map_or_else(
            || {
                &*Box::leak(Box::new(Slot {
                    is_open: AtomicBool::new(false),
                    value: UnsafeCell::new(None),
                }))
            },
            |address| address.0,
        );
        // SAFETY: a closed slot that is not in the list belongs to this thread.
        unsafe { *slot.value.get() = Some(value) };
        slot.is_open.store(true, Ordering::Release);
        std::ptr::from_ref(slot).cast_mut().cast()
    }

    /// The value of an open handle. EFAULT for a null pointer, EBADF for a closed handle.
    ///
    /// # Safety
    /// The pointer is null or was returned by `open`, and no other thread closes the handle during
    /// `'a`.
    #[inline]
    pub unsafe fn get<'a>(pointer: *const T::InC) -> Outcome<&'a T> {
        // SAFETY: slots are never freed.
        let slot = unsafe { pointer.cast::<Slot<T>>().as_ref() }.ok_or(libc::EFAULT)?;
        if !slot.is_open.load(Ordering::Acquire) {
            return Err(libc::EBADF);
        }
        // SAFETY: an open slot has a value, which no thread changes.
        unsafe { (*slot.value.get()).as_ref() }.ok_or(libc::EBADF)
    }

    /// Closes a handle. `close` ends the value, or refuses and returns it with an errno.
    ///
    /// # Safety
    /// The pointer is null or was returned by `open`, and no other thread uses the handle.
    pub unsafe fn close(
        pointer: *mut T::InC,
        close: impl FnOnce(T) -> Result<(), (i32, T)>,
    ) -> Outcome<()> {
        // SAFETY: slots are never freed.
        let slot: &'static Slot<T> =
            unsafe { pointer.cast::<Slot<T>>().as_ref() }.ok_or(libc::EFAULT)?;
        if !slot.is_open.swap(false, Ordering::AcqRel) {
            return Err(libc::EBADF);
        }
        // SAFETY: the slot is closed, so the value belongs to this thread.
        let value = unsafe { (*slot.value.get()).take() }.ok_or(libc::EBADF)?;
        match close(value) {
            Ok(()) => {
                if let Ok(mut list) = T::closed().0.try_lock() {
                    list.push(Address(slot));
                }
                Ok(())
            }
            Err((errno, value)) => {
                // SAFETY: as above.
                unsafe { *slot.value.get() = Some(value) };
                slot.is_open.store(true, Ordering::Release);
                Err(errno)
            }
        }
    }
}
