//! A detached process: it has its own session, and is no child of the process that has started it.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::c_int;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{ForkResult, fork};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// The descriptors of the calling process that a detached process has, too.
pub struct Inherited {
    pub descriptors: Vec<RawFd>,
    pub stderr: bool,
}

/// The way in which the intermediate process is started, which decides what the calling process notices of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// SIGCHLD is ignored while the intermediate process runs. So the kernel reaps it, and does not add its times to
    /// those of the children (RUSAGE_CHILDREN of getrusage(2)).
    Ignored,
    /// The calling process has children, which may end meanwhile and which it must not lose. The intermediate process
    /// sends no signal when it ends, and only waiting with `__WCLONE` finds it.
    Silent,
    /// An orphan would become a child of the calling process, which is a subreaper (PR_SET_CHILD_SUBREAPER of
    /// prctl(2)). So the intermediate process stays, as the parent of the detached one. It is silent.
    Parent,
}

/// Runs `run` in a detached process. `first` runs before, in the intermediate process. This process must have one
/// thread. When this returns, the detached process has no descriptor of this one but those that it keeps, and
/// `/` is its working directory. It blocks all signals.
///
/// # Errors
/// The errors of fork(2). ECHILD if the intermediate process fails.
pub fn start(kept: &Inherited, first: impl FnOnce(), run: impl FnOnce()) -> Result<()> {
    let way = Way::choose();
    let action = (way == Way::Ignored).then(Ignored::new);
    let (end, its) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = match way {
        // SAFETY: this process has one thread, so the child may call any function.
        Way::Ignored => unsafe { fork() }?,
        Way::Silent | Way::Parent => silent_fork()?,
    };
    let ForkResult::Parent { child } = child else {
        intermediate(kept, &its, way, first, run)
    };
    drop(its);
    let started = rustix::io::read(&end, &mut [0; 1]);
    if way != Way::Parent {
        let flags = if way == Way::Silent {
            libc::__WCLONE
        } else {
            0
        };
        // SAFETY: waitpid(2) writes nothing without an address. An ignored child is not found when it has ended.
        while unsafe { libc::waitpid(child.as_raw(), std::ptr::null_mut(), flags) } < 0
            && Error::last_os_error().kind() == ErrorKind::Interrupted
        {}
    }
    drop(action);
    match started {
        Ok(1) => Ok(()),
        _ => Err(Error::from_raw_os_error(libc::ECHILD)),
    }
}

impl Way {
    fn choose() -> Way {
        let mut is_subreaper: c_int = 0;
        // SAFETY: prctl(2) writes an int.
        let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_subreaper) };
        if asked == 0 && is_subreaper != 0 {
            return Way::Parent;
        }
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: waitid(2) writes nothing without an address, and takes no child with these flags.
        let asked = unsafe { libc::waitid(libc::P_ALL, 0, std::ptr::null_mut(), flags) };
        match asked {
            0 => Way::Silent,
            _ => Way::Ignored,
        }
    }
}

/// The action of SIGCHLD is to ignore it while this exists.
struct Ignored(libc::sigaction);

impl Ignored {
    fn new() -> Ignored {
        // SAFETY: all bytes zero are an action.
        let (mut ignored, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { std::mem::zeroed() };
        ignored.sa_sigaction = libc::SIG_IGN;
        // SAFETY: both are valid; ignoring a signal calls no function.
        unsafe { libc::sigaction(libc::SIGCHLD, &raw const ignored, &raw mut before) };
        Ignored(before)
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        // SAFETY: this is the action that the process had. It is that of the caller of this program, or the default
        // one: this program installs none.
        unsafe { libc::sigaction(libc::SIGCHLD, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// fork(2), but no signal is sent when the child ends.
fn silent_fork() -> Result<ForkResult> {
    // SAFETY: without flags, a stack and addresses, clone(2) is a fork(2) whose child sends the signal of the first
    // argument, here none. The C library's copy of the thread's ID is not updated: the child uses it only to fork again.
    let child = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    match child {
        0 => Ok(ForkResult::Child),
        1.. => Ok(ForkResult::Parent {
            child: nix::unistd::Pid::from_raw(child as i32),
        }),
        _ => Err(Error::last_os_error()),
    }
}

/// The intermediate process.
fn intermediate(
    kept: &Inherited,
    started: &OwnedFd,
    way: Way,
    first: impl FnOnce(),
    run: impl FnOnce(),
) -> ! {
    first();
    // SAFETY: exit_group(2). Destructors would change files and memory that the parent uses.
    let end = |code| unsafe { libc::_exit(code) };
    if give_up(kept, started.as_raw_fd()).is_none() {
        end(1);
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            // SAFETY: the descriptor belongs to this process, which uses it no more.
            unsafe { libc::close(started.as_raw_fd()) };
            run();
            end(0)
        }
        Ok(ForkResult::Parent { child }) => {
            let _ = rustix::io::write(started, &[0]);
            if way == Way::Parent {
                // SAFETY: the descriptor belongs to this process. Nothing else is held while the helper runs.
                unsafe { libc::close_range(0, u32::MAX, 0) };
                // SAFETY: waitpid(2) writes nothing without an address.
                while unsafe { libc::waitpid(child.as_raw(), std::ptr::null_mut(), 0) } < 0
                    && Error::last_os_error().kind() == ErrorKind::Interrupted
                {}
            }
            end(0)
        }
        Err(_) => end(1),
    }
}

/// Gives up all that this process has inherited, except some descriptors. `None` if that fails.
fn give_up(kept: &Inherited, started: RawFd) -> Option<()> {
    SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).ok()?;
    rustix::process::setsid().ok()?;
    rustix::process::chdir("/").ok()?;
    // A pipe ends when no process has it open for writing. A descriptor of O_PATH can be neither read nor written.
    let none = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    dup2_stdin(&none).and_then(|()| dup2_stdout(&none)).ok()?;
    if !kept.stderr {
        dup2_stderr(&none).ok()?;
    }
    // It is closed below.
    std::mem::forget(none);
    let mut kept: Vec<u32> = kept
        .descriptors
        .iter()
        .chain([&started])
        .map(|fd| fd.cast_unsigned())
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if fd > first {
            // SAFETY: no value of this process uses the other descriptors from now on.
            unsafe { libc::close_range(first, fd - 1, 0) };
        }
        first = fd.saturating_add(1);
    }
    raise_limits();
    Some(())
}

/// Closes standard error, which another process may wait for.
pub fn close_stderr() {
    // A descriptor of `/`: this process could otherwise write messages into a file that it opens.
    let _ = dup2_stderr(rustix::stdio::stdin());
}

/// The limits and the score of the program are not those of this process, as far as it may change them.
fn raise_limits() {
    for resource in [
        Resource::Cpu,
        Resource::Fsize,
        Resource::As,
        Resource::Nofile,
    ] {
        let limit = rustix::process::getrlimit(resource);
        let unlimited = Rlimit {
            current: None,
            maximum: None,
        };
        let highest = Rlimit {
            current: limit.maximum,
            ..limit
        };
        // RLIMIT_NOFILE has a maximum of its own.
        if resource == Resource::Nofile || rustix::process::setrlimit(resource, unlimited).is_err()
        {
            let _ = rustix::process::setrlimit(resource, highest);
        }
    }
    let score = std::fs::read_to_string("/proc/self/oom_score_adj");
    if score.is_ok_and(|score| score.starts_with('-')) {
        let _ = std::fs::write("/proc/self/oom_score_adj", "0");
    }
}
