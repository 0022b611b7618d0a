//! Threads with all signals blocked.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::thread::set_name;

/// The stack size of a thread in bytes, the same as for threads of the standard library.
const STACK: usize = 2 << 20;

/// The function and the name of a thread.
struct Start {
    name: &'static std::ffi::CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// Starts a named thread with all signals blocked. No signal is then delivered to the program
/// because of an operation (SIGPIPE and SIGXFSZ are sent to the thread that writes). A panic of
/// `body` ends only the thread.
///
/// It uses pthread_create(3), because the standard library takes locks of its own when it starts a
/// thread. If another thread forks at that moment, these locks stay locked in the child, which
/// cannot start threads then. The C library restores its own locks in the child.
///
/// # Errors
/// The errno of pthread_create(3): EAGAIN if no more threads can be started.
pub fn spawn_without_signals(
    name: &'static std::ffi::CStr,
    body: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let body = Box::new(body);
    let start = Box::into_raw(Box::new(Start { name, body }));
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // A new thread inherits the signal mask. All signals are blocked for its start, then the mask
    // is restored.
    // SAFETY: sigfillset initialises `all`; pthread_sigmask initialises `before`. `start` belongs
    // to the new thread, which alone frees it.
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
/// `start` must come from `Box::into_raw`. If this returns 0, it belongs to the new thread.
unsafe fn create(start: *mut Start) -> i32 {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: pthread_attr_init initialises `attributes`, which is valid until it is destroyed
    // here. `run` takes an argument of the type of `start`.
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
    // SAFETY: the pointer that was passed to `create`, which belongs to this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // The name is informational. The thread works without it.
    let _ = set_name(start.name);
    let body = start.body;
    // A panic must not leave a function that C calls. Its payload may panic when it is dropped.
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
