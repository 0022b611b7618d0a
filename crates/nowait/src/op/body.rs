//! The contents of an operation, in memory that its thread uses again for the next one.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::time::Instant;

use super::Kind;
use super::progress::Progress;

/// The contents of an operation.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) kind: Kind,
    pub(crate) user_data: u64,
    pub(crate) deadline: Option<Instant>,
    pub(crate) progress: Progress,
}

type Memory = Box<MaybeUninit<Contents>>;

/// The number of pieces of memory that a thread keeps: those of a large batch.
const MAX_KEPT: usize = 128;

thread_local! {
    /// The memory of operations that have ended in this thread. malloc(3) has a fast path for seven
    /// pieces of a size only.
    static KEPT: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

/// A box with the contents of an operation.
#[derive(Debug)]
pub(crate) struct Body(ManuallyDrop<Box<Contents>>);

impl Body {
    #[inline]
    pub(crate) fn new(kind: Kind) -> Body {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop());
        let memory: Memory = kept.ok().flatten().unwrap_or_else(Box::new_uninit);
        // The parts are written where they stay.
        let contents = Box::write(
            memory,
            Contents {
                kind,
                user_data: 0,
                deadline: None,
                progress: Progress::default(),
            },
        );
        Body(ManuallyDrop::new(contents))
    }

    #[inline]
    pub(crate) fn into_kind(self) -> Kind {
        const { assert!(!needs_drop::<Progress>() && !needs_drop::<Option<Instant>>()) };
        let mut body = ManuallyDrop::new(self);
        // SAFETY: `body` is not used after this, and not dropped.
        let contents = Box::into_raw(unsafe { ManuallyDrop::take(&mut body.0) });
        // SAFETY: the contents are valid. Their memory is not read after this, and the other fields
        // need no drop.
        let kind = unsafe { ptr::read(&raw const (*contents).kind) };
        // SAFETY: the pointer comes from a box, and any contents are valid for `MaybeUninit`.
        keep(unsafe { Box::from_raw(contents.cast()) });
        kind
    }
}

impl Deref for Body {
    type Target = Contents;

    #[inline]
    fn deref(&self) -> &Contents {
        &self.0
    }
}

impl DerefMut for Body {
    #[inline]
    fn deref_mut(&mut self) -> &mut Contents {
        &mut self.0
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // SAFETY: the box is not used after this.
        let contents = Box::into_raw(unsafe { ManuallyDrop::take(&mut self.0) });
        // SAFETY: the contents are valid, and are not used after this. If a destructor panics,
        // their memory is leaked.
        unsafe { ptr::drop_in_place(contents) };
        // SAFETY: the pointer comes from a box, and any contents are valid for `MaybeUninit`.
        keep(unsafe { Box::from_raw(contents.cast()) });
    }
}

/// Keeps memory for the next operation of this thread. Frees it if the thread has enough, or ends.
#[inline]
fn keep(memory: Memory) {
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(memory);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Nop;

    #[test]
    fn an_operation_in_flight_is_small() {
        assert!(size_of::<Contents>() <= 288, "{}", size_of::<Contents>());
    }

    #[test]
    fn the_memory_of_an_operation_is_used_again() {
        let address = |body: &Body| std::ptr::from_ref::<Contents>(body).addr();
        let body = Body::new(Kind::Nop(Nop));
        let first = address(&body);
        drop(body);
        let body = Body::new(Kind::Nop(Nop));
        assert_eq!(address(&body), first);
        assert!(matches!(body.into_kind(), Kind::Nop(Nop)));
        assert_eq!(address(&Body::new(Kind::Nop(Nop))), first);
    }

    #[test]
    fn a_thread_keeps_the_memory_of_a_batch_at_most() {
        let many: Vec<_> = (0..2 * MAX_KEPT)
            .map(|_| Body::new(Kind::Nop(Nop)))
            .collect();
        drop(many);
        assert_eq!(KEPT.with_borrow(Vec::len), MAX_KEPT);
    }
}
