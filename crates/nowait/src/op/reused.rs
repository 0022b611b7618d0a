//! A box whose memory its thread uses again.
//!
//! A batch frees the memory of many operations at once, and malloc(3) has a fast path for seven
//! pieces of a size only.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::thread::LocalKey;

/// The number of pieces of memory that a thread keeps: those of a large batch.
const MAX_KEPT: usize = 128;

/// The memory that a thread keeps for values of one type.
pub(crate) type Kept<T> = RefCell<Vec<Box<MaybeUninit<T>>>>;

/// A type whose values have memory that is used again.
pub(crate) trait Reuse: Sized + 'static {
    /// The memory that the calling thread keeps.
    const KEPT: &'static LocalKey<Kept<Self>>;
}

/// A box. The thread that drops it keeps its memory for its next one.
#[derive(Debug)]
pub(crate) struct Reused<T: Reuse>(ManuallyDrop<Box<T>>);

impl<T: Reuse> Reused<T> {
    /// The memory is there before the value is made, so that the value is made in place.
    #[inline]
    pub(crate) fn new(make: impl FnOnce() -> T) -> Reused<T> {
        let memory = take().unwrap_or_else(Box::new_uninit);
        Reused(ManuallyDrop::new(Box::write(memory, make())))
    }

    /// Makes something of the value. If `make` panics, the memory is leaked.
    // `make` is called before the memory is given back, so that only what it uses is read.
    #[inline]
    pub(crate) fn into_part<U>(self, make: impl FnOnce(T) -> U) -> U {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used after this, and not dropped.
        let boxed = Box::into_raw(unsafe { ManuallyDrop::take(&mut this.0) });
        // SAFETY: the value is valid, and its memory is not read after this.
        let part = make(unsafe { ptr::read(boxed) });
        // SAFETY: the pointer comes from a box, and `MaybeUninit` has any contents.
        keep(unsafe { Box::from_raw(boxed.cast::<MaybeUninit<T>>()) });
        part
    }
}

impl<T: Reuse> Deref for Reused<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Reuse> DerefMut for Reused<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Reuse> Drop for Reused<T> {
    fn drop(&mut self) {
        // SAFETY: the box is not used after this.
        let boxed = Box::into_raw(unsafe { ManuallyDrop::take(&mut self.0) });
        // SAFETY: the value is valid, and is not used after this. If a destructor panics, the
        // memory is leaked.
        unsafe { ptr::drop_in_place(boxed) };
        // SAFETY: the pointer comes from a box, and `MaybeUninit` has any contents.
        keep(unsafe { Box::from_raw(boxed.cast::<MaybeUninit<T>>()) });
    }
}

/// Takes memory that the thread has kept.
#[inline(always)]
fn take<T: Reuse>() -> Option<Box<MaybeUninit<T>>> {
    let kept = T::KEPT.try_with(|kept| kept.borrow_mut().pop());
    kept.ok().flatten()
}

/// Keeps memory for the next value of this thread. Frees it if the thread has enough, or ends.
#[inline(always)]
fn keep<T: Reuse>(memory: Box<MaybeUninit<T>>) {
    let _ = T::KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(memory);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Value(Arc<()>);

    thread_local! {
        static KEPT: Kept<Value> = const { RefCell::new(Vec::new()) };
    }

    impl Reuse for Value {
        const KEPT: &'static LocalKey<Kept<Value>> = &KEPT;
    }

    #[test]
    fn memory_is_used_again_and_values_are_dropped_once() {
        let counted = Arc::new(());
        let address = |value: &Reused<Value>| ptr::from_ref::<Value>(value).addr();
        let value = Reused::new(|| Value(counted.clone()));
        let first = address(&value);
        drop(value);
        assert_eq!(Arc::strong_count(&counted), 1);
        let value = Reused::new(|| Value(counted.clone()));
        assert_eq!(address(&value), first);
        let inner = value.into_part(|value| value);
        assert_eq!(Arc::strong_count(&inner.0), 2);
        assert_eq!(address(&Reused::new(|| inner)), first);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_thread_keeps_the_memory_of_a_batch_at_most() {
        let value = || Reused::new(|| Value(Arc::default()));
        let many: Vec<_> = std::iter::repeat_with(value).take(2 * MAX_KEPT).collect();
        drop(many);
        assert_eq!(KEPT.with_borrow(Vec::len), MAX_KEPT);
    }
}
