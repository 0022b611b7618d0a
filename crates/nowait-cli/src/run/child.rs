//! The program as a child process: it gets the signals that are sent to `nowait run`, and its end is that of `nowait run`.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::inherited;
use crate::problem::Problem;

/// The signals that the program gets. SIGTSTP is not among them: a terminal stops both processes.
const PASSED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGWINCH,
];

/// The signals that this process has blocked.
pub struct Signals {
    fd: SignalFd,
    /// The mask of this process before.
    before: SigSet,
}

/// A program that runs.
pub struct Child {
    process: std::process::Child,
    signals: Signals,
}

/// The end of a program.
pub struct End(ExitStatus);

impl Signals {
    /// Blocks the signals in this thread and in those that it starts: they are passed to the program. It comes before the first
    /// thread.
    pub fn block() -> Result<Signals, Problem> {
        let mut set = SigSet::from_iter(PASSED);
        set.add(Signal::SIGCHLD);
        set.thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .and_then(|before| {
                let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?;
                Ok(Signals { fd, before })
            })
            .map_err(|e| Problem::of("cannot catch signals", e))
    }
}

impl Child {
    /// Starts a program, with the signal mask that this process was started with.
    pub fn spawn(command: &mut Command, name: &OsStr, signals: Signals) -> Result<Child, Problem> {
        let before = signals.before;
        let restore = move || {
            inherited::restore();
            before.thread_set_mask().map_err(io::Error::from)
        };
        // SAFETY: close(2), signal(2) and pthread_sigmask(3) may be called between fork(2) and execve(2).
        unsafe { command.pre_exec(restore) };
        let process = command.spawn().map_err(|e| not_run(name, &e))?;
        Ok(Child { process, signals })
    }

    /// Waits for the end of the program, and passes signals to it.
    pub fn wait(mut self) -> Result<End, Problem> {
        let failed = |e: &dyn std::fmt::Display| Problem::of("cannot wait for the program", e);
        let pid = Pid::from_raw(self.process.id().cast_signed());
        loop {
            if let Some(status) = self.process.try_wait().map_err(|e| failed(&e))? {
                return Ok(End(status));
            }
            let Some(info) = self.signals.fd.read_signal().map_err(|e| failed(&e))? else {
                continue;
            };
            // A terminal sends its signals to the program, too.
            let from_kernel = info.ssi_code > 0;
            match Signal::try_from(info.ssi_signo.cast_signed()) {
                Ok(signal) if PASSED.contains(&signal) && !from_kernel => {
                    // The program has ended if it is not there.
                    let _ = kill(pid, signal);
                }
                _ => {}
            }
        }
    }
}

fn not_run(name: &OsStr, error: &io::Error) -> Problem {
    let (code, why) = match error.kind() {
        io::ErrorKind::NotFound => (127, "not found".to_owned()),
        _ => (126, error.to_string()),
    };
    Problem::NotRun(code, format!("{}: {why}", name.display()))
}

impl End {
    /// The exit code of the program. After a signal, this process ends by the same.
    pub fn exit(self) -> ExitCode {
        if let Some(number) = self.0.signal() {
            // One core file is enough: the program's.
            let _ = rustix::process::setrlimit(
                rustix::process::Resource::Core,
                rustix::process::Rlimit {
                    current: Some(0),
                    maximum: Some(0),
                },
            );
            if let Ok(signal) = Signal::try_from(number) {
                // Rust's runtime handles or ignores some of them.
                // SAFETY: the default action replaces a handler.
                let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
                let _ = raise(signal);
                let _ = SigSet::from(signal).thread_unblock();
            }
            return ExitCode::from((128 + number) as u8);
        }
        ExitCode::from(self.0.code().unwrap_or(1) as u8)
    }
}
