//! Threads that run Python code while the interpreter shuts down.
//!
//! CPython before 3.14 ends a thread that asks for the GIL after the interpreter has begun to shut
//! down: by pthread_exit(3), which unwinds the stack of the thread. The frames of this module
//! cannot be unwound, and the process would abort. A thread with a guard sleeps until the process
//! ends, as in CPython 3.14.
//!
//! ```text
//!  guard() ─► Python code ─► pthread_exit(3) ─► cleanup handler: sleeps
//!                                               (no frame was unwound)
//! ```
//! glibc calls a cleanup handler when it has unwound the stack up to the address of the handler's
//! buffer. A buffer outside the stack is reached before the first frame.
#![allow(
    unsafe_code,
    reason = "cleanup handlers of a thread are no part of std"
)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::thread;
use std::time::Duration;

/// `struct _pthread_cleanup_buffer` of <pthread.h>.
#[repr(C)]
struct Buffer {
    routine: Option<extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Buffer,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(
        buffer: *mut Buffer,
        routine: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

/// The handler of a thread.
struct Handler {
    /// On the heap: thread-local memory may be in the thread's stack.
    buffer: Box<UnsafeCell<Buffer>>,
    /// The number of guards.
    guards: Cell<usize>,
}

thread_local! {
    static HANDLER: Handler = Handler {
        buffer: Box::new(UnsafeCell::new(Buffer {
            routine: None,
            argument: std::ptr::null_mut(),
            cancel_type: 0,
            previous: std::ptr::null_mut(),
        })),
        guards: Cell::new(0),
    };
}

/// While it lives, pthread_exit(3) lets this thread sleep.
#[must_use]
pub struct Guard {
    /// A guard stays in its thread.
    _thread: PhantomData<*const ()>,
}

/// Makes a guard, before each call of a function that may run Python code: one that takes objects of
/// the program, or drops the last reference to one.
#[inline]
pub fn guard() -> Guard {
    // A thread that is ending has no thread-local memory any more.
    let _ = HANDLER.try_with(|handler| {
        let guards = handler.guards.get();
        handler.guards.set(guards + 1);
        if guards == 0 {
            // SAFETY: the buffer is not in the thread's list of handlers, and lives as long as the
            // thread.
            unsafe { _pthread_cleanup_push(handler.buffer.get(), sleep, std::ptr::null_mut()) };
        }
    });
    Guard {
        _thread: PhantomData,
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let _ = HANDLER.try_with(|handler| {
            let guards = handler.guards.get() - 1;
            handler.guards.set(guards);
            if guards == 0 {
                // SAFETY: the buffer is in the list, and later buffers are not in it any more.
                unsafe { _pthread_cleanup_pop(handler.buffer.get(), 0) };
            }
        });
    }
}

extern "C" fn sleep(_: *mut c_void) {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
