//! The helper: a process beside the program that reads ahead, learns, or evicts.
//!
//! ```text
//!  nowait run ── fork ──► intermediate process: setsid, no descriptors, no limits ── fork ──► helper
//!       │  ◄───────────────────────── its process ID, or a problem ────────────────────────────┤
//!       │  ───────────────────────── about to execute; or: failed ────────────────────────────►│
//!       └─ execve(2): the program ── events ──► channel; its end ──► pidfd ───────────────────►┘
//! ```
//!
//! `nowait run` executes the program in its own process, so nothing is between the program and its caller. The
//! intermediate process ends before that, so that the helper is no child of the program. The helper holds nothing
//! that the program could notice: no directory and no terminal. Its descriptors are the memory of the channels, a
//! pidfd of the program, the sockets to `nowait run`, the lock of the program's control group, and standard error, if it prints a
//! report or the caller waits (`--wait`).
//!
//! A call on one of the program's paths may wait without end, for a server or a disk that does not answer. The
//! kernel ends a process only when all calls of its threads have returned. Neither the program nor its caller waits
//! for the helper.
#![allow(unsafe_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nowait_ahead_channel::{Channel, Listening, Moment};
use nowait_ahead_policy::{Evictor, Readahead};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use super::detached::{self, Inherited};
use super::group::Group;
use super::{command, report};
use crate::learn::{Running, Session};
use crate::name::shown;
use crate::problem::Problem;

/// The work of a helper.
pub struct Work {
    /// The trees that are walked beside the program. The paths are absolute.
    pub walk: Vec<PathBuf>,
    /// The events of the program, for readahead. Their channel is that of `readahead`.
    pub events: Option<Arc<Channel>>,
    /// Reads ahead.
    pub readahead: Readahead,
    /// The channel by which the library learns that pages are kept.
    pub kept: Option<Arc<Channel>>,
    /// `kept` has surveys of the page cache, by which pages are evicted.
    pub surveys: bool,
    /// The control group of the program, whose pages are evicted.
    pub group: Option<Group>,
    /// The program is learnt.
    pub learning: Option<Learning>,
    /// A report is wanted.
    pub wants_report: bool,
    /// The socket of a process that waits for the helper. Problems are printed even if no report is wanted.
    pub awaited: Option<UnixStream>,
}

/// The profile of a program, and the channel to which the program's events are sent.
pub struct Learning {
    pub session: Session,
    pub channel: Arc<Channel>,
}

/// A helper that has been started, for the process that is about to execute the program.
pub struct Helper {
    socket: UnixStream,
    pid: u32,
}

/// The program, for the helper.
struct Program {
    pid: u32,
    socket: UnixStream,
    /// Becomes readable when the program ends.
    end: OwnedFd,
}

/// No thread is started for a program that ends within this time, unless it is learnt or surveyed, or trees are
/// walked. A helper that follows later reads all events since the start of the program.
const DELAY: Duration = Duration::from_millis(3);
/// The time that the eviction of a control group may take. Data may have to be written first.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(11);
/// The time that a helper has to write what is ready after SIGTERM, if the program has ended.
const TERMINATION_TIMEOUT: Duration = Duration::from_millis(800);

/// The message if an eviction takes longer.
const NOT_IN_TIME: &str = "nowait: not all pages were evicted in time\n";

/// Messages of the helper. The text of a problem follows the last two.
const READY: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// Messages to the helper.
const EXECUTES: u8 = 3;
const NOT_EXECUTED: u8 = 4;

impl Helper {
    /// Starts a helper for this process, which must have one thread, and which is about to execute the program.
    /// `memory` are the descriptors of the channels. Waits until the helper has neither a descriptor nor the working
    /// directory of this process, and until its walks have begun.
    ///
    /// # Errors
    /// The errors of socketpair(2), pidfd_open(2) and fork(2); those of the walks.
    pub fn start(work: Work, memory: &[&OwnedFd]) -> Result<Helper, Problem> {
        let failed =
            |e: std::io::Error| Problem::of("cannot start the process that reads ahead", e);
        let (socket, its) = UnixStream::pair().map_err(failed)?;
        let own = rustix::process::getpid();
        let end = pidfd_open(own, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        let descriptors = [its.as_raw_fd(), end.as_raw_fd()];
        let descriptors = descriptors
            .into_iter()
            .chain(memory.iter().map(|fd| fd.as_raw_fd()));
        let kept = Inherited {
            descriptors: descriptors
                .chain(work.awaited.iter().map(AsRawFd::as_raw_fd))
                .chain(work.group.iter().map(Group::lock))
                .collect(),
            stderr: work.wants_report || work.awaited.is_some(),
        };
        let group = work.group.clone();
        let program = Program {
            pid: std::process::id(),
            socket: its,
            end,
        };
        detached::start(
            &kept,
            || group.iter().for_each(Group::leave),
            || work.run(program),
        )
        .map_err(failed)?;
        Helper::of(socket)
    }

    /// Reads the first message: the helper's process ID, or a problem.
    fn of(mut socket: UnixStream) -> Result<Helper, Problem> {
        let (mut kind, mut pid, mut text) = ([READY], [0; 4], String::new());
        let ended = |e| Problem::of("the process that reads ahead has ended", e);
        socket.read_exact(&mut kind).map_err(ended)?;
        if kind == [READY] {
            socket.read_exact(&mut pid).map_err(ended)?;
            let pid = u32::from_ne_bytes(pid);
            return Ok(Helper { socket, pid });
        }
        socket.read_to_string(&mut text).map_err(ended)?;
        Err(match kind {
            [USAGE] => Problem::Usage(text),
            _ => Problem::Failed(text),
        })
    }

    /// The path of a descriptor that the helper has kept, for programs that are to open it.
    pub fn path_of(&self, memory: &OwnedFd) -> String {
        format!("/proc/{}/fd/{}", self.pid, memory.as_raw_fd())
    }

    /// This process is about to execute the program. The helper notices the execution by the end of the socket.
    pub fn executes(&mut self) {
        let _ = self.socket.write_all(&[EXECUTES]);
    }

    /// The program could not be executed. The helper ends, and writes nothing.
    pub fn not_executed(mut self) {
        let _ = self.socket.write_all(&[NOT_EXECUTED]);
    }
}

impl Program {
    /// Waits until the program is executed. Returns false if that has failed, or if the process has ended before.
    fn is_executed(&mut self) -> bool {
        let mut messages = Vec::new();
        let read = self.socket.read_to_end(&mut messages);
        read.is_ok() && messages == [EXECUTES]
    }

    /// Waits for the end of the program, or for this time. Returns true if the program has ended.
    fn ends_within(&self, time: Option<Duration>) -> bool {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        loop {
            match poll(&mut [PollFd::new(&self.end, PollFlags::IN)], time.as_ref()) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }
}

impl Work {
    /// Returns true if there is work for a helper.
    pub fn is_any(&self) -> bool {
        !self.walk.is_empty()
            || self.events.is_some()
            || self.kept.is_some()
            || self.group.is_some()
            || self.learning.is_some()
    }

    /// There is no work. A process that waits for the helper need not.
    pub fn skip(self) {
        if let Some(mut socket) = self.awaited {
            let _ = socket.write_all(&[READY]);
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

    /// Begins the walks, and tells the caller so, or the problem. Returns false if the program will not be executed.
    fn is_ready(&self, program: &mut Program) -> bool {
        let begun = self.begin_walks();
        let message = match &begun {
            Ok(()) => [&[READY][..], &std::process::id().to_ne_bytes()].concat(),
            Err(problem) => {
                let is_usage = matches!(problem, Problem::Usage(_));
                let kind = if is_usage { USAGE } else { FAILED };
                [&[kind], problem.to_string().as_bytes()].concat()
            }
        };
        if let Some(channel) = self.surveys() {
            Evictor::prepare(&channel);
        }
        program.socket.write_all(&message).is_ok() && begun.is_ok()
    }

    /// The channel of surveys, if files are surveyed.
    fn surveys(&self) -> Option<Arc<Channel>> {
        self.kept.clone().filter(|_| self.surveys)
    }

    /// The channel of the evictor, if there is to be one. The control group does not have the pages of files whose data this process
    /// reads ahead. Then no event is sent to the channel.
    fn evicts_by(&self) -> Option<Arc<Channel>> {
        let is_apart = self.group.is_some() && self.readahead.reads_data();
        let own = || Some(Arc::new(Channel::create(0).ok()?.0));
        match is_apart {
            true => self.kept.clone().or_else(own),
            false => self.surveys(),
        }
    }

    /// The helper.
    fn run(mut self, mut program: Program) {
        let is_unseen = self
            .wants_report
            .then_some(command::is_unseen as fn(&Path) -> bool)
            .filter(|_| self.surveys);
        // The walks may begin to read data at once.
        let evictor = self.evicts_by().map(|channel| {
            let group = self.group.as_ref().map(Group::path).map(Path::to_owned);
            Evictor::start(channel, program.pid, group, &self.readahead, is_unseen)
        });
        if !self.is_ready(&mut program) {
            return;
        }
        let started = Moment::now();
        // It loads while the program starts.
        let learning = self.learning.take();
        let running = learning.map(|it| it.session.begin(it.channel, program.pid));
        if !program.is_executed() {
            return;
        }
        if let Some(events) = &self.events {
            // From now on the library measures the time of calls.
            events.learn_speed(&started);
        }
        if !program.ends_within(Some(DELAY)) {
            self.readahead.follow();
            program.ends_within(None);
        }
        if let Some(events) = &self.events {
            // Processes that the program leaves behind need not ask.
            events.listen(Listening::Off);
        }
        let has_results = evictor.is_some() || running.is_some() || self.group.is_some();
        if !has_results && !self.wants_report && self.awaited.is_none() {
            return;
        }
        self.finish(evictor, running);
    }

    /// Evicts, saves and reports when the program has ended.
    fn finish(mut self, evictor: Option<Evictor>, running: Option<Running>) {
        // Processes that the program leaves behind run on as without `nowait run`.
        if let Some(channel) = &self.kept {
            channel.listen(Listening::Off);
        }
        obey_termination();
        let mut text = match self.wants_report {
            true => self.report(),
            false => String::new(),
        };
        self.readahead.end();
        let learnt = running
            .map(|running| running.end(self.wants_report))
            .unwrap_or_default();
        if let Some(evictor) = evictor {
            self.readahead.end_data();
            match evictor.stop() {
                Some(kept) if self.wants_report && self.surveys => text += &report::kept(&kept),
                Some(kept) if self.wants_report => text += &report::kept_mounts(&kept),
                Some(_) => {}
                None => text += NOT_IN_TIME,
            }
        }
        text += &learnt;
        if let Some(group) = self.group.take() {
            let (report, failed) = evict(group);
            text.push_str(if self.wants_report { &report } else { "" });
            text += &failed;
        }
        // Without --stats and --wait, standard error is that of no file.
        let _ = std::io::stderr().write_all(text.as_bytes());
        if let Some(mut socket) = self.awaited.take() {
            // The caller may now unmount the filesystems that this process has read.
            self.readahead.wait_until_closed();
            let _ = socket
                .write_all(&[READY])
                .and_then(|()| socket.shutdown(Shutdown::Both));
        }
        // Descriptors stay open as long as a thread of this process waits.
        detached::close_stderr();
    }

    /// The text of the sums so far, if anything was read ahead.
    fn report(&mut self) -> String {
        let report = self.readahead.report();
        match report.activity.is_some() || !self.walk.is_empty() {
            true => report::text(&report),
            false => String::new(),
        }
    }
}

/// Evicts the pages of a group. Returns a report, and what has failed. A disk that does not write holds up the thread,
/// and this process when it ends, but not its messages.
fn evict(group: Group) -> (String, String) {
    let (to, end) = mpsc::channel();
    let thread = std::thread::Builder::new().name("evict".to_owned());
    // The receiver may be gone.
    let started = thread.spawn(move || drop(to.send(group.end())));
    let report = started
        .ok()
        .and_then(|_| end.recv_timeout(EVICTION_TIMEOUT).ok());
    let late = || (String::new(), NOT_IN_TIME.to_owned());
    report.unwrap_or_else(late)
}

/// Ends this process some time after SIGTERM. A service manager sends it to all processes that a service leaves behind.
fn obey_termination() {
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let _ = thread.spawn(|| {
        // All threads block it.
        if SigSet::from(Signal::SIGTERM).wait().is_ok() {
            std::thread::sleep(TERMINATION_TIMEOUT);
            // SAFETY: exit_group(2). A destructor could wait for a thread.
            unsafe { libc::_exit(0) };
        }
    });
}
