//! A process that waits for the program and for the helper: with `--wait`, and as process 1 of a PID namespace, whose
//! end is the end of all processes there.
//!
//! The program is its child. It passes on the signals that it gets, stops and ends as the program does, and as process
//! 1 reaps the processes that other ones leave behind.
#![allow(unsafe_code)]

use std::io::{Error, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use crate::problem::Problem;

/// A process that supervises a program.
struct Supervisor {
    program: Pid,
    signals: SignalFd,
    is_init: bool,
    end: Option<WaitStatus>,
    /// A signal that ends processes has come since the program has ended.
    is_terminated: bool,
}

/// The time that the helper has after the end of the program. It evicts for at most half of it.
const LONGEST: Duration = Duration::from_secs(30);

/// Returns true if this process is the first one of its PID namespace.
pub fn is_init() -> bool {
    std::process::id() == 1
}

/// Runs `execute` in a child, and waits for its end. `execute` gives the socket to the helper, and returns only if the
/// program cannot be executed. Then this returns in the child, too. `missing` is printed if the helper has not sent a
/// byte before its end.
pub fn run(
    missing: Option<&str>,
    execute: impl FnOnce(UnixStream) -> Problem,
) -> Result<ExitCode, Problem> {
    let failed = |e: Error| Problem::of("cannot wait for the program", e);
    let (mut socket, its) = UnixStream::pair().map_err(failed)?;
    let all = SigSet::all();
    let before = all
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(|e| failed(e.into()))?;
    // SAFETY: this process has one thread, so the child may call any function.
    let child = match unsafe { fork() }.map_err(|e| failed(e.into()))? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let _ = before.thread_set_mask();
            drop(socket);
            return Err(execute(its));
        }
    };
    drop((its, execute));
    // If SIGCHLD is ignored, the exit status of the program is lost (wait(2)).
    // SAFETY: the default action calls no function.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let mut supervisor = Supervisor {
        program: Pid::from_raw(child.as_raw())
            .ok_or_else(|| failed(Error::from_raw_os_error(libc::ESRCH)))?,
        signals: SignalFd::with_flags(&all, flags).map_err(|e| failed(e.into()))?,
        is_init: is_init(),
        end: None,
        is_terminated: false,
    };
    let end = supervisor.wait(&socket)?;
    // A helper that does not answer has sent nothing.
    let is_done = socket.set_nonblocking(true).is_ok() && socket.read_exact(&mut [0]).is_ok();
    if let Some(missing) = missing
        && !is_done
    {
        crate::messages::say(missing);
    }
    Ok(end_as(end))
}

impl Supervisor {
    /// Waits for the end of the program, and then for the helper's last message, or for its end. Returns the end of the
    /// program.
    fn wait(&mut self, helper: &UnixStream) -> Result<WaitStatus, Problem> {
        let mut limit = None;
        loop {
            self.take_signals();
            self.look();
            if self.end.is_some() {
                limit.get_or_insert_with(|| Instant::now() + LONGEST);
            }
            // After the end of the program, the socket ends the wait, too.
            let mut fds = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(helper, PollFlags::IN),
            ];
            let count = if self.end.is_some() { 2 } else { 1 };
            if let Some(end) = self.end
                && self.is_terminated
            {
                return Ok(end);
            }
            let left = limit.map(|it: Instant| it.saturating_duration_since(Instant::now()));
            let left = left.and_then(|it| Timespec::try_from(it).ok());
            // After an error, signals are taken and the program is looked at again.
            let ready = poll(&mut fds[..count], left.as_ref());
            if let Some(end) = self.end
                && (ready == Ok(0) || !fds[1].revents().is_empty())
            {
                return Ok(end);
            }
        }
    }

    /// Takes the signals that were sent to this process, and passes them to the program if it runs.
    fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = info.ssi_signo.cast_signed();
            // A terminal sends its signals to the program, too.
            let from_kernel = info.ssi_code > 0;
            if self.end.is_some() {
                self.is_terminated |= matches!(number, libc::SIGINT | libc::SIGTERM | libc::SIGHUP);
            } else if number != libc::SIGCHLD && !from_kernel {
                // SAFETY: kill(2) takes any number. The program was not waited for, so no other process has its ID.
                unsafe { libc::kill(self.program.as_raw_nonzero().get(), number) };
            }
        }
    }

    /// Looks if children have ended, or if the program has stopped.
    fn look(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let which = (!self.is_init).then_some(self.program);
        while let Ok(Some((pid, status))) = waitpid(which, options) {
            if pid != self.program {
                continue;
            }
            if status.stopped() {
                // The caller of this process notices it, and continues both.
                let _ = kill_process(rustix::process::getpid(), Signal::STOP);
                continue;
            }
            self.end = Some(status);
            if !self.is_init {
                break;
            }
        }
    }
}

/// The exit code of a program. If a signal has ended it, this process ends by the same.
fn end_as(status: WaitStatus) -> ExitCode {
    let Some(signal) = status.terminating_signal() else {
        return ExitCode::from(status.exit_status().unwrap_or(1) as u8);
    };
    // One core file is enough: the program's.
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    );
    // Rust's runtime handles or ignores some of them.
    // SAFETY: the default action replaces a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: raise(3) accepts any number.
    unsafe { libc::raise(signal) };
    // SAFETY: all bytes zero are a set; the functions change it, and this thread's mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    ExitCode::from((128 + signal) as u8)
}
