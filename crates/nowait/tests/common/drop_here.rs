//! Objects of a parent that a forked child drops.
#![allow(
    unsafe_code,
    reason = "the parent's object is dropped by its own process, too"
)]

/// Drops an object of the parent in the child, as an orderly exit does.
pub fn drop_here<T>(it: &T) {
    // SAFETY: only in a forked child that ends without using it again.
    drop(unsafe { std::ptr::read(it) });
}
