//! The few system calls that rustix lacks, or that must not be made through it.
//!
//! Every function is one call: no retries, no policy.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;

use crate::abi::Sigval;

/// The calling thread's errno, as an error.
fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Sets errno and returns C's −1.
pub fn fail(errno: Errno) -> c_int {
    // SAFETY: glibc's errno of the calling thread, always there.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
    -1
}

/// EAGAIN for an error that says that descriptors, memory or threads are short: that is what POSIX
/// calls a lack of resources to queue a request. Any other error as it is.
pub fn short_of_resources(errno: Errno) -> Errno {
    match errno {
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::NOSPC => Errno::AGAIN,
        errno => errno,
    }
}

/// The time by CLOCK_MONOTONIC: clock_gettime(2). The C library's: valgrind maps no vDSO, which rustix
/// calls by itself.
pub fn monotonic() -> libc::timespec {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time is the call's to fill, and all zeroes is one.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr());
        now.assume_init()
    }
}

/// A moment of CLOCK_MONOTONIC that futex_wait waits for; the last one there is stands for "never".
pub const NEVER: libc::timespec = libc::timespec {
    tv_sec: i64::MAX,
    tv_nsec: 0,
};

/// Sleeps while the word has this value, at most until then: futex(2), FUTEX_WAIT_BITSET.
///
/// There is always a time to wait for: only then does the kernel end the call with EINTR after a
/// handler with SA_RESTART. Plain old code, no destructor: a thread may be cancelled in here.
pub fn futex_wait(word: &AtomicU32, value: u32, until: &libc::timespec) -> c_int {
    // SAFETY: the word and the time live through the call, and the kernel only reads them.
    let slept = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::from_ref(until),
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    if slept == 0 {
        0
    } else {
        // SAFETY: as in `fail`.
        unsafe { *libc::__errno_location() }
    }
}

/// Whether this signal's handler has SA_RESTART: sigaction(2).
pub fn restarts(signo: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: only asks; the action is initialised where that says so.
    unsafe {
        libc::sigaction(signo, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_flags & libc::SA_RESTART != 0
    }
}

/// Wakes all who sleep on the word: futex(2), FUTEX_WAKE.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives through the call, which does not look at what it holds.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            i32::MAX,
        );
    }
}

/// Waits for events, or for as long: epoll_wait(2). The C library's: rustix leaves an argument without a
/// value where it has no set of signals, which the kernel then ignores, and valgrind complains of.
pub fn epoll_wait(
    epoll: BorrowedFd<'_>,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
    let timeout = timeout.map_or(-1, |timeout| timeout.as_millis() as c_int);
    // SAFETY: the events are the call's to fill, as many as there are.
    let there = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), room, timeout) };
    usize::try_from(there).map_err(|_| last_error())
}

/// The calling thread's number. Asked each time: a copy of it would be wrong after fork(2).
pub fn thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Whether two descriptors, each in the table of its own thread, are the same open file: kcmp(2).
/// `None` where the kernel lacks the call or a sandbox denies it.
pub fn same_file(one: (i32, RawFd), other: (i32, RawFd)) -> Option<bool> {
    const KCMP_FILE: c_int = 0;
    // The numbers of files are whole registers to this call.
    let (one_fd, other_fd) = (i64::from(one.1), i64::from(other.1));
    // SAFETY: only numbers are passed.
    let order =
        unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one_fd, other_fd) };
    match order {
        0 => Some(true),
        1..=3 => Some(false),
        // One of the two is no descriptor any more.
        _ if last_error() == Errno::BADF => Some(false),
        _ => None,
    }
}

/// Whether two descriptors of this thread's table are the same open file: fcntl(2) F_DUPFD_QUERY
/// (6.10), else kcmp(2). `None` where both are missing.
pub fn same_here(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Option<bool> {
    const F_DUPFD_QUERY: c_int = 1024 + 3;
    // SAFETY: only numbers are passed.
    match unsafe { libc::fcntl(one.as_raw_fd(), F_DUPFD_QUERY, other.as_raw_fd()) } {
        0 => Some(false),
        1 => Some(true),
        _ => {
            let me = thread();
            same_file((me, one.as_raw_fd()), (me, other.as_raw_fd()))
        }
    }
}

/// How many descriptors the program may have: getrlimit(2). The C library's: rustix panics if a sandbox
/// denies it.
pub fn descriptor_limit() -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the limit is the call's to fill, and initialised where that says so.
    unsafe {
        let got = libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        (got == 0).then(|| limit.assume_init().rlim_cur)
    }
}

/// close_range(2).
fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: only numbers are passed; the descriptors closed are copies in a table of a thread of our
    // own, which no code uses.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Gives the calling thread a descriptor table of its own: a copy, at least of the numbers up to `keep`.
pub fn own_table(keep: RawFd) -> Result<(), Errno> {
    // What lies above is not even copied.
    if close_range(keep as u32 + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE).is_ok() {
        return Ok(());
    }
    // Before 5.9 there is no close_range(2).
    // SAFETY: the calling thread is one of our own: no code of the program runs on it that could
    // rely on the shared table.
    match unsafe { libc::unshare(libc::CLONE_FILES) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Closes all descriptors but `keep` in the calling thread's own table.
///
/// fcntl(2) locks belong to the program's table and stay: what is closed here drops none of them.
pub fn close_others(keep: RawFd) -> Result<(), Errno> {
    let number = keep as u32;
    if close_range(number + 1, u32::MAX, 0).is_ok()
        && (number == 0 || close_range(0, number - 1, 0).is_ok())
    {
        return Ok(());
    }
    let numbers: Vec<RawFd> = std::fs::read_dir("/proc/thread-self/fd")
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|n| *n != keep) {
        // SAFETY: this table's copy, which nobody uses.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// An empty message by a socket, which no write of no bytes in pieces sends: send(2), without waiting and
/// without SIGPIPE. ENOTSOCK of any other file.
pub fn send_nothing(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: no memory is passed.
    match unsafe { libc::send(fd.as_raw_fd(), std::ptr::null(), 0, flags) } {
        0.. => Ok(()),
        _ => Err(last_error()),
    }
}

/// One read(2) or write(2).
///
/// # Safety
/// As [`transfer_now`].
pub unsafe fn transfer(
    fd: BorrowedFd<'_>,
    write: bool,
    start: *mut u8,
    len: usize,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let moved = unsafe {
        if write {
            libc::write(fd.as_raw_fd(), start.cast(), len)
        } else {
            libc::read(fd.as_raw_fd(), start.cast(), len)
        }
    };
    usize::try_from(moved).map_err(|_| last_error())
}

/// One read(2) or write(2) that does not wait: preadv2(2), pwritev2(2) with RWF_NOWAIT.
///
/// # Safety
/// The memory must be the program's own for this request; the kernel checks that it is there.
pub unsafe fn transfer_now(
    fd: BorrowedFd<'_>,
    write: bool,
    start: *mut u8,
    len: usize,
) -> Result<usize, Errno> {
    let iov = libc::iovec {
        iov_base: start.cast(),
        iov_len: len,
    };
    // The file's own position. Flags are a whole register too, as all is to syscall(2).
    let (position, flags) = (-1_i64, i64::from(libc::RWF_NOWAIT));
    let call = if write {
        libc::SYS_pwritev2
    } else {
        libc::SYS_preadv2
    };
    // SAFETY: the iovec lives through the call, and the memory is as the caller promises.
    let moved = unsafe {
        libc::syscall(
            call,
            fd.as_raw_fd(),
            &raw const iov,
            1,
            position,
            0_i64,
            flags,
        )
    };
    usize::try_from(moved).map_err(|_| last_error())
}

/// What a queued signal carries, as the kernel takes it: `siginfo_t` of 64-bit Linux.
#[repr(C)]
struct SignalInfo {
    signo: c_int,
    errno: c_int,
    code: c_int,
    pad: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: Sigval,
    rest: [u64; 12],
}

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

/// Queues a signal to this process as POSIX wants it of asynchronous I/O: rt_sigqueueinfo(2).
pub fn queue_signal(signo: c_int, value: Sigval) -> Result<(), Errno> {
    const SI_ASYNCIO: c_int = -4;
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let info = SignalInfo {
        signo,
        errno: 0,
        code: SI_ASYNCIO,
        pad: 0,
        pid,
        uid: rustix::process::getuid().as_raw(),
        value,
        rest: [0; 12],
    };
    // SAFETY: the record lives through the call, which only reads it.
    match unsafe { libc::syscall(libc::SYS_rt_sigqueueinfo, pid, signo, &raw const info) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Ends the process with all its threads: exit_group(2).
pub fn exit_group(status: c_int) -> ! {
    loop {
        // SAFETY: only a number is passed.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Runs with every signal blocked on the calling thread.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all`; pthread_sigmask initialises `before`. Only the calling
    // thread's mask changes.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = work();
    // SAFETY: `before` was initialised above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    result
}

/// The stack of a thread of ours, in bytes.
const STACK: usize = 256 << 10;

/// Starts a detached thread on which every signal is blocked: it inherits its starter's mask. It has
/// its starter's name.
///
/// By pthread_create(3), whose locks fork(2) leaves free in the child. `std::thread` has locks of its
/// own, which another thread may have held when the process forked.
pub fn start_without_signals(body: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    type Body = Box<dyn FnOnce() + Send>;
    extern "C" fn run(body: *mut c_void) -> *mut c_void {
        // SAFETY: it was given away for this.
        let body = *unsafe { Box::from_raw(body.cast::<Body>()) };
        // C can't be unwound through. What the body held is not looked at after a panic.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        std::ptr::null_mut()
    }
    let body: *mut Body = Box::into_raw(Box::new(Box::new(body)));
    let start = |stack: Option<usize>| {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut thread: libc::pthread_t = 0;
        // SAFETY: the attributes are initialised before they are used, and destroyed after; the new
        // thread, if there is one, owns `body`.
        unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            let detached = libc::PTHREAD_CREATE_DETACHED;
            libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), detached);
            if let Some(stack) = stack {
                libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack);
            }
            let errno =
                libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, body.cast());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            errno
        }
    };
    let errno = without_signals(|| match start(Some(STACK)) {
        // The program's thread-local variables take more than that.
        libc::EINVAL => start(None),
        errno => errno,
    });
    if errno == 0 {
        return Ok(());
    }
    // SAFETY: no thread was started that could own it.
    drop(unsafe { Box::from_raw(body) });
    Err(Errno::from_raw_os_error(errno))
}
