//! Threads of the library.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use rustix::io::Errno;

use crate::sys::signal;

/// The calling thread's ID: gettid(2). It is not cached, because a cached ID would be wrong after
/// fork(2).
pub fn id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The stack of a thread of the library, in bytes.
const STACK_SIZE: usize = 256 << 10;

/// Starts a detached thread on which all signals are blocked. It has the name of the calling
/// thread.
///
/// By pthread_create(3), whose locks fork(2) leaves free in the child. `std::thread` has locks of
/// its own, which another thread may have held when the process forked.
pub fn start_with_signals_blocked(body: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    type Body = Box<dyn FnOnce() + Send>;
    extern "C" fn run(body: *mut c_void) -> *mut c_void {
        // SAFETY: the thread that called pthread_create(3) has given up the box.
        let body = *unsafe { Box::from_raw(body.cast::<Body>()) };
        // A panic must not unwind through C. The values that the body owned are not used after a
        // panic.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        std::ptr::null_mut()
    }
    let body: *mut Body = Box::into_raw(Box::new(Box::new(body)));
    let start = |stack_size: Option<usize>| {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut thread: libc::pthread_t = 0;
        // SAFETY: the attributes are initialised before they are used, and destroyed after; the new
        // thread, if there is one, owns `body`.
        unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            let detached = libc::PTHREAD_CREATE_DETACHED;
            libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), detached);
            if let Some(size) = stack_size {
                libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size);
            }
            let errno =
                libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, body.cast());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            errno
        }
    };
    let errno = signal::with_all_blocked(|| match start(Some(STACK_SIZE)) {
        // The program's thread-local variables need a larger stack.
        libc::EINVAL => start(None),
        errno => errno,
    });
    if errno == 0 {
        return Ok(());
    }
    // SAFETY: no thread was started, so the box has no other owner.
    drop(unsafe { Box::from_raw(body) });
    Err(Errno::from_raw_os_error(errno))
}
