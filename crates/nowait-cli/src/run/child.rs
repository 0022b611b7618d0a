//! The program as a child process. It gets the signals that are sent to `nowait run`, and `nowait
//! run` ends as it does.
#![allow(unsafe_code)]

use std::ffi::{CString, NulError, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{WaitOptions, WaitStatus};

use super::{command, inherited};
use crate::name::shown;
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
    pid: Pid,
    signals: Signals,
    end: Option<End>,
}

/// The end of a program.
#[derive(Clone, Copy)]
pub struct End(WaitStatus);

impl Signals {
    /// Blocks the signals that are passed to the program, in this thread and in those that it
    /// starts. To be called before the first thread is started.
    pub fn block() -> Result<Signals, Problem> {
        // If SIGCHLD is ignored, the exit status of the program is lost (wait(2)).
        // SAFETY: the default action calls no function.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let mut set = SigSet::from_iter(PASSED);
        set.add(Signal::SIGCHLD);
        set.thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .and_then(|before| {
                let fd =
                    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
                Ok(Signals { fd, before })
            })
            .map_err(|e| Problem::of("cannot catch signals", e))
    }
}

impl Child {
    /// Starts a program with the signal mask, the ignored signals and the open descriptors that
    /// this process was started with. SIGCHLD is not ignored, even if it was.
    ///
    /// `Command::spawn` would need a function in the child for that. It then calls fork(2), which
    /// copies page tables. posix_spawn(3) does not.
    pub fn spawn(command: &Command, signals: Signals) -> Result<Child, Problem> {
        let name = command.get_program();
        let started = match start(command, &[name], signals.before) {
            // A script without `#!`: as execvp(3) runs it.
            Err(Errno::ENOEXEC) => {
                let script = command::find(name).unwrap_or_default();
                let shell = ["/bin/sh".as_ref(), script.as_os_str()];
                start(command, &shell, signals.before)
            }
            started => started,
        };
        let pid = started.map_err(|e| not_run(name, e))?;
        Ok(Child {
            pid,
            signals,
            end: None,
        })
    }

    /// Waits for the end of the program or for a signal, at most for some time. Returns true if the
    /// program has ended.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        // `wait` handles errors and signals.
        let _ = poll(
            &mut [PollFd::new(&self.signals.fd, PollFlags::IN)],
            time.as_ref(),
        );
        matches!(self.look(), Ok(Some(_)))
    }

    /// Waits for the end of the program, and passes signals to it. Afterwards signals have the
    /// effect on this process that they had before.
    pub fn wait(mut self) -> Result<End, Problem> {
        let failed = |e: &dyn std::fmt::Display| Problem::of("cannot wait for the program", e);
        loop {
            self.take_signals().map_err(|e| failed(&e))?;
            if let Some(end) = self.look().map_err(|e| failed(&e))? {
                // A terminal has sent its signals to both processes before the program can have
                // ended by them.
                self.take_signals().map_err(|e| failed(&e))?;
                let _ = self.signals.before.thread_set_mask();
                return Ok(end);
            }
            // After an error, signals are taken and the program is looked at again.
            let _ = poll(&mut [PollFd::new(&self.signals.fd, PollFlags::IN)], None);
        }
    }

    /// Takes the signals that were sent to this process, and passes them to the program if it runs.
    fn take_signals(&mut self) -> Result<(), Errno> {
        while let Some(info) = self.signals.fd.read_signal()? {
            // A terminal sends its signals to the program, too.
            let from_kernel = info.ssi_code > 0;
            match Signal::try_from(info.ssi_signo.cast_signed()) {
                Ok(signal) if PASSED.contains(&signal) && !from_kernel && self.end.is_none() => {
                    // The program has ended if it is not there.
                    let _ = kill(self.pid, signal);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The end of the program, if it has ended.
    fn look(&mut self) -> Result<Option<End>, rustix::io::Errno> {
        if self.end.is_none() {
            let pid = rustix::process::Pid::from_raw(self.pid.as_raw());
            let ended = rustix::process::waitpid(pid, WaitOptions::NOHANG)?;
            self.end = ended.map(|(_, status)| End(status));
        }
        Ok(self.end)
    }
}

/// Starts `words` with the arguments of a command.
fn start(command: &Command, words: &[&OsStr], mask: SigSet) -> Result<Pid, Errno> {
    let words = words.iter().copied().chain(command.get_args());
    let arguments: Vec<CString> = words
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<_, _>>()
        .map_err(no_argument)?;
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    attributes.set_sigmask(&mask)?;
    attributes.set_sigdefault(&inherited::default_signals())?;
    let mut actions = PosixSpawnFileActions::init()?;
    for fd in inherited::closed() {
        actions.add_close(fd)?;
    }
    posix_spawnp(
        &arguments[0],
        &actions,
        &attributes,
        &arguments,
        &environment(command)?,
    )
}

/// The environment of this process with the changes of a command.
fn environment(command: &Command) -> Result<Vec<CString>, Errno> {
    let changes: Vec<(&OsStr, Option<&OsStr>)> = command.get_envs().collect();
    let kept =
        std::env::vars_os().filter(|(name, _)| changes.iter().all(|(changed, _)| name != changed));
    let set = changes
        .iter()
        .filter_map(|(name, value)| Some((OsString::from(name), OsString::from((*value)?))));
    kept.chain(set)
        .map(|(mut variable, value)| {
            variable.push("=");
            variable.push(value);
            CString::new(variable.into_vec())
        })
        .collect::<Result<_, _>>()
        .map_err(no_argument)
}

/// The error for a zero byte in an argument or the environment.
fn no_argument(_: NulError) -> Errno {
    Errno::EINVAL
}

fn not_run(name: &OsStr, error: Errno) -> Problem {
    let (code, why) = match error {
        Errno::ENOENT => (127, "not found".to_owned()),
        _ => (126, std::io::Error::from(error).to_string()),
    };
    Problem::NotRun(code, format!("{}: {why}", shown(&name)))
}

impl End {
    /// The exit code of the program. After a signal, this process ends by the same.
    pub fn exit(self) -> ExitCode {
        let Some(signal) = self.0.terminating_signal() else {
            return ExitCode::from(self.0.exit_status().unwrap_or(1) as u8);
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
        if let Ok(signal) = Signal::try_from(signal) {
            let _ = SigSet::from(signal).thread_unblock();
        }
        ExitCode::from((128 + signal) as u8)
    }
}
