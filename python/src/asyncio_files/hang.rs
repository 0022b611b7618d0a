//! Calls of Python in a thread that the interpreter may end.
//!
//! When the interpreter shuts down, CPython ends a thread that asks for the GIL: before 3.14 by
//! pthread_exit(3), which unwinds the stack of the thread. Rust must not catch that, and destructors of
//! Python objects must not run without the GIL.

use std::thread;
use std::time::Duration;

/// Stops the unwinding: the thread sleeps until the process ends, as in CPython 3.14.
struct Hang;

impl Drop for Hang {
    fn drop(&mut self) {
        // A panic of Rust goes on.
        while !thread::panicking() {
            thread::sleep(Duration::from_secs(3600));
        }
    }
}

/// Calls Python code, or a function that does.
#[inline]
pub fn python<T>(call: impl FnOnce() -> T) -> T {
    let hang = Hang;
    let result = call();
    std::mem::forget(hang);
    result
}
