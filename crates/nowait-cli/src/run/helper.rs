//! The helper: a process of its own that reads ahead.
//!
//! A call on one of the program's paths may wait without end, for a server or a disk that does not
//! answer. The kernel ends a process only when all calls of its threads have returned, and a signal
//! does not interrupt some of them. So `nowait run` itself makes no such call while the program
//! runs. It ends with its program, even if the helper cannot end.
//!
//! ```text
//!  nowait run ── fork ──► helper: walks, reads files, follows the program
//!       │  ◄── socket ──►   │
//!       └─ spawns ─► the program ── events ──► channel ──► helper
//! ```
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{ForkResult, close, fork};
use nowait_ahead_channel::Channel;
use nowait_ahead_policy::{Keeper, Readahead};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::{command, report};
use crate::learn::Session;
use crate::name::shown;
use crate::problem::Problem;

/// The work of a helper.
pub struct Work {
    /// The trees that are walked beside the program.
    pub walk: Vec<PathBuf>,
    /// Reads ahead.
    pub readahead: Readahead,
    /// The channel with surveys of the page cache, if they keep it.
    pub surveys: Option<Arc<Channel>>,
    /// The program is learnt.
    pub learning: Option<Learning>,
    /// A report is wanted.
    pub wants_report: bool,
}

/// The profile of a program, and the channel to which the program's events are sent.
pub struct Learning {
    pub session: Session,
    pub channel: Arc<Channel>,
}

/// A helper that runs.
pub struct Helper {
    pid: Pid,
    socket: UnixStream,
}

/// The time that `nowait run` waits for the report of the helper and for its end. When the helper
/// has ended, the program's files are no longer in use. The thread that writes the report makes no
/// call that waits.
const STOP_TIMEOUT: Duration = Duration::from_millis(150);
/// The same, if the helper evicts pages, which may have to be written first.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(11);
/// The same, if it writes a profile.
const LEARNING_TIMEOUT: Duration = Duration::from_millis(1500);
/// The message of a helper whose walks have begun.
const READY: u8 = 0;
/// Messages before the text of a problem.
const USAGE: u8 = 2;
const FAILED: u8 = 1;

impl Helper {
    /// Starts a helper. This process must have one thread.
    ///
    /// # Errors
    /// The errors of socketpair(2) and fork(2).
    pub fn start(work: &mut Work) -> std::io::Result<Helper> {
        let parent = rustix::process::getpid();
        let (socket, its) = UnixStream::pair()?;
        // SAFETY: this process has one thread, so the child may call any function.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Helper {
                pid: Pid::from_raw(child.as_raw()).ok_or(rustix::io::Errno::SRCH)?,
                socket,
            }),
            ForkResult::Child => work.run(&its, parent),
        }
    }

    /// Waits until the walks have begun. There must be one.
    pub fn is_ready(&mut self) -> Result<(), Problem> {
        let mut kind = [READY];
        let ended = |e| Problem::of("the process that reads ahead has ended", e);
        self.socket.read_exact(&mut kind).map_err(ended)?;
        if kind == [READY] {
            return Ok(());
        }
        let mut text = String::new();
        self.socket.read_to_string(&mut text).map_err(ended)?;
        Err(match kind {
            [USAGE] => Problem::Usage(text),
            _ => Problem::Failed(text),
        })
    }

    /// Ends the helper. Returns its report if it is wanted and comes in time. Without a report and
    /// pages to evict, the helper is killed at once. Its files are no longer in use when its calls
    /// have returned, which takes as long as a request to the disk.
    pub fn stop(mut self, work: &Work) -> Option<String> {
        let timeout = match (&work.surveys, &work.learning) {
            (Some(_), _) => EVICTION_TIMEOUT,
            (None, Some(_)) => LEARNING_TIMEOUT,
            (None, None) => STOP_TIMEOUT,
        };
        let says = work.wants_report || work.learning.is_some();
        let end = Instant::now() + timeout;
        let comes = |fd: BorrowedFd<'_>, flags| {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            poll(&mut [PollFd::from_borrowed_fd(fd, flags)], left.as_ref()) == Ok(1)
        };
        let process = rustix::process::pidfd_open(self.pid, PidfdFlags::empty());
        let kill = || {
            let _ = rustix::process::kill_process(self.pid, rustix::process::Signal::KILL);
        };
        if says || work.surveys.is_some() {
            let _ = self.socket.shutdown(Shutdown::Write);
        } else {
            kill();
        }
        let mut report = String::new();
        // The helper shuts the socket down after the report, or ends without a report.
        if says && comes(self.socket.as_fd(), PollFlags::RDHUP) {
            let _ = self.socket.read_to_string(&mut report);
        }
        if !process.is_ok_and(|it| comes(it.as_fd(), PollFlags::IN)) {
            kill();
        }
        Some(report).filter(|it| !it.is_empty())
    }
}

impl Work {
    /// The text of the sums so far, if anything was read ahead.
    pub fn report(&mut self) -> String {
        let report = self.readahead.report();
        match report.activity.is_some() || !self.walk.is_empty() {
            true => report::text(&report),
            false => String::new(),
        }
    }

    fn begin_walks(&self) -> Result<(), Problem> {
        self.walk.iter().try_for_each(|path| {
            let shown = shown(&path);
            let walked = self.readahead.walk(path);
            walked.map_err(|e| match e.kind() {
                ErrorKind::NotADirectory => {
                    Problem::Usage(format!("{shown}: --walk takes directories"))
                }
                _ => Problem::of(shown, e),
            })
        })
    }

    /// The helper.
    fn run(&mut self, mut socket: &UnixStream, parent: Pid) -> ! {
        // SAFETY: exit_group(2). Destructors would change files and memory that the parent uses.
        let end = || unsafe { libc::_exit(0) };
        if prepare(socket.as_raw_fd(), parent).is_none() {
            end();
        }
        let surveys = self.surveys.clone();
        let is_unseen = self
            .wants_report
            .then_some(command::is_unseen as fn(&Path) -> bool);
        let keeper = surveys.map(|channel| Keeper::start(channel, &self.readahead, is_unseen));
        let learning = self.learning.as_ref();
        let running = learning.map(|it| it.session.clone().begin(it.channel.clone()));
        if !self.walk.is_empty() {
            let begun = self.begin_walks();
            let message = match &begun {
                Ok(()) => vec![READY],
                Err(problem) => {
                    let is_usage = matches!(problem, Problem::Usage(_));
                    let kind = if is_usage { USAGE } else { FAILED };
                    [&[kind], problem.to_string().as_bytes()].concat()
                }
            };
            if socket.write_all(&message).is_err() || begun.is_err() {
                end();
            }
        }
        // The program could not unmount the filesystem of the working directory.
        let _ = rustix::process::chdir("/");
        self.readahead.follow();
        // `nowait run` sends nothing, and shuts the socket down when the program has ended.
        let _ = socket.read(&mut [0]);
        let learnt = running.map(|running| running.end(self.wants_report));
        let report = match self.wants_report {
            true => self.report(),
            false => String::new(),
        };
        let kept = keeper.map(|keeper| {
            self.readahead.end_data();
            report::kept(&keeper.stop())
        });
        let _ = socket.write_all(
            (report + &kept.unwrap_or_default() + &learnt.unwrap_or_default()).as_bytes(),
        );
        // The descriptor stays open as long as a thread of this process waits.
        let _ = socket.shutdown(Shutdown::Write);
        end()
    }
}

/// Gives up all that this process has inherited, except a descriptor. `None` if that fails.
fn prepare(kept: RawFd, parent: Pid) -> Option<()> {
    let killed = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(killed).ok()?;
    if rustix::process::getppid() != Some(parent) {
        return None;
    }
    // The program gets the signals of the terminal. Ctrl-Z stops all three.
    let mut signals = SigSet::all();
    signals.remove(Signal::SIGTSTP);
    signals.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok()?;
    // A pipe ends when no process has it open for writing. A descriptor of O_PATH can be neither
    // read nor written.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let none = rustix::fs::open("/", flags, Mode::empty()).ok()?;
    let directory = std::fs::read_dir("/proc/self/fd").ok()?;
    let open: Vec<RawFd> = directory
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    dup2_stdin(&none)
        .and_then(|()| dup2_stdout(&none))
        .and_then(|()| dup2_stderr(&none))
        .ok()?;
    let kept = [0, 1, 2, kept, none.as_raw_fd()];
    for fd in open.into_iter().filter(|fd| !kept.contains(fd)) {
        let _ = close(fd);
    }
    Some(())
}
