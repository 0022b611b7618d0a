//! Threads that take no signals.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::thread::set_name;

/// The stack of a thread, in bytes: as large as the standard library's threads have it.
const STACK: usize = 2 << 20;

/// What a thread is to do, and its name.
struct Start {
    name: &'static std::ffi::CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a named thread on which every signal is blocked, so that no signal of the program is
/// ever delivered because of an operation (SIGPIPE and SIGXFSZ go to the thread that writes). A panic
/// of `body` ends the thread and nothing else.
///
/// By pthread_create(3): the standard library takes locks of its own when it starts a thread. A fork
/// that another thread makes meanwhile leaves them locked in the child, which then can start none. The
/// C library puts its locks right in the child.
///
/// # Errors
/// As pthread_create(3) says: EAGAIN where no further thread is to be had.
pub(crate) fn spawn_without_signals(
    name: &'static std::ffi::CStr,
    body: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let body = Box::new(body);
    let start = Box::into_raw(Box::new(Start { name, body }));
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread inherits its parent's mask: block all, start it, put ours back.
    // SAFETY: sigfillset initialises `all`; pthread_sigmask initialises `before`. `start` is the new
    // thread's, which alone frees it.
    let failed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let failed = create(start);
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        failed
    };
    if failed == 0 {
        return Ok(());
    }
    // SAFETY: made above, and no thread was started that would free it.
    drop(unsafe { Box::from_raw(start) });
    Err(Error::from_raw_os_error(failed))
}

/// pthread_create(3) of a thread that is never joined. Returns an errno, or 0.
///
/// # Safety
/// `start` came from `Box::into_raw`. If this returns 0 it belongs to the new thread.
unsafe fn create(start: *mut Start) -> i32 {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: pthread_attr_init initialises `attributes`, which lives until it is destroyed here;
    // `run` takes what `start` is.
    unsafe {
        let failed = libc::pthread_attr_init(attributes.as_mut_ptr());
        if failed != 0 {
            return failed;
        }
        let attributes = attributes.as_mut_ptr();
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes, STACK);
        let failed = libc::pthread_create(thread.as_mut_ptr(), attributes, run, start.cast());
        libc::pthread_attr_destroy(attributes);
        failed
    }
}

extern "C" fn run(start: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: what `create` was given, which is this thread's alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // A name is for people who look: without it the thread works as well.
    let _ = set_name(start.name);
    let body = start.body;
    // No panic may leave a function that C calls. What it carries may panic when it is dropped.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        std::mem::forget(panic);
    }
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_has_its_name_and_blocks_every_signal() {
        let (tell, told) = channel();
        spawn_without_signals(c"nowait-test", move || {
            tell.send(std::fs::read_to_string("/proc/thread-self/status").unwrap())
                .unwrap();
        })
        .unwrap();
        let status = told.recv().unwrap();
        assert!(status.starts_with("Name:\tnowait-test\n"), "{status}");
        let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:\t"));
        let blocked = u64::from_str_radix(blocked.unwrap(), 16).unwrap();
        for signal in [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGTERM, libc::SIGALRM] {
            assert!(blocked & 1 << (signal - 1) != 0, "{signal}: {blocked:x}");
        }
    }

    #[test]
    fn a_panic_ends_its_own_thread_alone() {
        struct Tells(std::sync::mpsc::Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }
        let (tell, told) = channel();
        let tells = Tells(tell);
        spawn_without_signals(c"nowait-test", move || {
            let _tells = tells;
            std::panic::resume_unwind(Box::new("a test"));
        })
        .unwrap();
        told.recv().unwrap();
    }
}
