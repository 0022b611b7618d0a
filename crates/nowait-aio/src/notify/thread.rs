//! Starts the threads of SIGEV_THREAD. They belong to the program.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use rustix::io::Errno;

use crate::abi::{NotifyFunction, Sigval};

/// The attributes that the program gave; null for none.
#[derive(Clone, Copy, Debug)]
pub struct Attributes(pub *const libc::pthread_attr_t);

// SAFETY: Assumption: the program keeps the attributes until it was notified, as with glibc.
unsafe impl Send for Attributes {}
// SAFETY: as above; they are only read.
unsafe impl Sync for Attributes {}

/// The function that the new thread calls, and its argument.
struct Call {
    function: NotifyFunction,
    value: Sigval,
}

unsafe extern "C-unwind" {
    fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
}

/// Starts a thread that calls the function. It is detached if the program gave no attributes.
pub fn start(function: NotifyFunction, value: Sigval, attributes: Attributes) -> Result<(), Errno> {
    let call = Box::into_raw(Box::new(Call { function, value }));
    let mut detached = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the attributes are the program's, or initialised here and destroyed after use; the
    // new thread owns `call`.
    let errno = unsafe {
        if attributes.0.is_null() {
            libc::pthread_attr_init(detached.as_mut_ptr());
            libc::pthread_attr_setdetachstate(detached.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
            let errno = pthread_create(&raw mut thread, detached.as_ptr(), run, call.cast());
            libc::pthread_attr_destroy(detached.as_mut_ptr());
            errno
        } else {
            pthread_create(&raw mut thread, attributes.0, run, call.cast())
        }
    };
    if errno != 0 {
        // SAFETY: no thread was started, so the box has no other owner.
        drop(unsafe { Box::from_raw(call) });
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(())
}

/// The body of the thread. It inherits the signal mask of the thread that starts it, and runs the
/// program's function with an empty mask. The function may unwind through this (pthread_exit(3)).
unsafe extern "C-unwind" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `start` has given up the box.
    let Call { function, value } = *unsafe { Box::from_raw(argument.cast::<Call>()) };
    let mut empty = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set; the function is called as the program asked.
    unsafe {
        libc::sigemptyset(empty.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, empty.as_ptr(), std::ptr::null_mut());
        function(value);
    }
    std::ptr::null_mut()
}
