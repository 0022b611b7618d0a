//! `nowait keep` keeps files resident in the page cache, within a budget.
//!
//! ```text
//!  signals, inotify, memory pressure, watchdog ─► main thread ─► events ─► keeper (a thread)
//!                                                                             │
//!                      status file, Prometheus, service manager ◄─────────────┘
//! ```

mod batch;
mod directories;
mod directory;
mod entry;
mod events;
mod files;
mod keeper;
mod list;
mod lock;
mod memory;
mod notify;
mod own_file;
mod plan;
mod pressure;
mod prometheus;
mod report;
mod root;
mod settings;
mod status;
mod status_file;
mod sweep;
mod target;
mod watch;
mod work;

use std::fs::File;
use std::io::PipeReader;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nowait_page_cache::Allowed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::messages::say;
use crate::name::DisplayPath;
use crate::problem::Problem;
use crate::size::Size;

use events::EventQueue;
use keeper::Keeper;
use memory::{Floor, Lookout};
use settings::{Settings, SharedFile, prometheus_file};
use watch::Watches;

/// Keeps files resident in the page cache, within a budget.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = r#"Runs until SIGTERM or Ctrl-C. The missing parts of the files are read, those of the first PATH
first. The directories are watched with inotify(7): files that are replaced, extended or new are read within
a second, and files that are removed or replaced are let go at once. Mapped files that other programs change,
lower layers of overlayfs, mounts, and changes that other hosts make on a network filesystem raise no event. A sweep
finds them.

A sweep asks the kernel which pages are cached, and reads what is missing. Sweeps are 60 seconds apart. A
sweep of many files takes longer: it goes on in steps, which take a quarter of a percent of one processor. The
kernel does not report which pages of a file are cached to users who neither own the file nor may write to
it. Such files are read completely in each sweep, and a message says so.

A file on which another process holds a lease for writing (fcntl(2)) is not opened, because that would break
the lease. It is reported, counted as failed, and looked at again by the next sweep. While a file is locked,
no process can take such a lease.

With --lock, files are mapped and locked with mlock(2) as far as RLIMIT_MEMLOCK and half of vm.max_map_count
allow; a process with CAP_IPC_LOCK has no such limit of bytes. At most three quarters of the available memory
are locked, the rest is touched. It is looked at ten times a second, and locks are released if other programs
need it. If files are too many, the largest ones of a
PATH are locked. The others, and files with holes, are read as with --touch, and a message for each PATH says
how many. The filesystem of locked files cannot be unmounted. The kernel releases the locks when the process
ends, also by SIGKILL.

The budget is at most seven eighths of the available memory, in a cgroup with a limit of that of the cgroup.
Locked memory of this process counts as available. If the kernel reports memory pressure (some processes wait
for memory 200 ms within 2 seconds, in /proc/pressure/memory) or pages are swapped out, a quarter of the kept
memory is given up, from the last PATH on: locks are released and pages are evicted. It comes back step by
step after 10 seconds without pressure, or later if the pressure returns.

After the first look at all files, a line on standard error says that the program is ready. `nowait keep
--ready` waits for that, also if the other process is not started yet: `timeout 60 nowait keep --ready`.

Signals: SIGHUP reads the file of --paths again and starts a sweep; SIGTERM and SIGINT end the program.
With NOTIFY_SOCKET, the program reports to the service manager (sd_notify(3)): READY=1 after the first look
at all files, STATUS, RELOADING=1, STOPPING=1, and WATCHDOG=1 if WATCHDOG_USEC is set.

--prometheus writes a text file for the textfile collector of node_exporter, whose name must end in .prom. A
file that is there is replaced only if an ended `nowait keep` has left it. The file is removed at the end.

JSON (--status --json): one object. Sizes are in bytes, times in seconds since 1970.
  {
    "keep": 1,             version of this format
    "version",             of nowait
    "instances": [{        the processes of this user
      "pid",
      "mode",              touch or lock
      "started",
      "swept",             the beginning of the last complete sweep
      "next_sweep",        the next sweep, or the next step of one
      "budget_given",      as in --budget
      "budget",            in bytes, as the available memory allows now
      "limit",             the same, or less because of memory pressure
      "pressure",          reports of memory pressure; null: the kernel
                           reports none here
      "unwatched_directories",
                           sweeps find the changes in them
      "paths": [{
        "path",            bytes that are not UTF-8 are replaced
        "path_hex",        bytes of the path in hexadecimal, only if it is not
                           UTF-8
        "files",
        "size",            without holes
        "budget",          the bytes that are to be resident
        "resident_estimated",
                           of these, what was resident at the last sweep, or
                           when it was read later
        "locked",
        "read",            bytes read since the start
        "read_again_estimated",
                           of these, what had been resident before; evictions
                           between two sweeps count once
        "unknown_files", "unknown_size",
                           files of unknown residency; not in
                           "resident_estimated"
        "failed",          files that could not be opened
        "unknown"          the reason, otherwise null
      }],
      "total"              sums of the numbers of the paths
    }]
  }
Later programs may add keys without changing the version.

Examples:
  nowait keep --budget 4G db/index db     the index first, then the rest
  nowait keep --lock /usr/bin/sshd        stays usable without free memory
  nowait keep --paths /etc/nowait/keep/web.paths
  nowait keep --status                    how much is resident

Exit status:
  0    ended by SIGTERM or SIGINT; with --status: some process runs
  1    none of the paths can be kept; with --status: no process runs
  2    wrong usage"#
)]
pub struct Args {
    /// Files and directories, the most important first. All regular files below a directory are kept.
    /// Symbolic links given here are followed, those below a directory are not
    #[arg(value_name = "PATH", required_unless_present_any = ["list", "status", "ready"])]
    paths: Vec<PathBuf>,

    /// Read the paths from FILE, one in each line. Empty lines and lines that begin with # are skipped
    #[arg(long = "paths", value_name = "FILE", conflicts_with = "paths")]
    list: Option<PathBuf>,

    /// Keep at most BYTES, or N percent of the available memory
    #[arg(
        long,
        value_name = "BYTES|N%",
        default_value_t = Allowed::Percent(50),
        value_parser = budget
    )]
    budget: Allowed,

    /// Read what is missing, and let the kernel manage the pages: the default
    #[arg(long, conflicts_with = "lock")]
    touch: bool,

    /// Lock the files in memory, as far as the limits allow, and touch the rest
    #[arg(long)]
    lock: bool,

    /// Read at most BYTES per second. Without it, sweeps read at most 100M per second, and the first
    /// read and changed files are not limited
    #[arg(long, value_name = "BYTES")]
    rate: Option<Size>,

    /// Time between sweeps, at least 60
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(60..)
    )]
    interval: u32,

    /// Skip directories on other filesystems than their PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Write the status to FILE for Prometheus
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,

    /// Show what the running processes of this user keep
    #[arg(
        long,
        conflicts_with_all = [
            "paths", "list", "budget", "touch", "lock", "rate", "interval", "one_file_system", "prometheus"
        ]
    )]
    status: bool,

    /// Wait until a running process of this user has looked at all its files, as its line "ready" says
    #[arg(
        long,
        conflicts_with_all = [
            "paths", "list", "budget", "touch", "lock", "rate", "interval", "one_file_system", "prometheus",
            "status"
        ]
    )]
    ready: bool,

    /// With --status: print one JSON object instead of a table
    #[arg(long, requires = "status", conflicts_with_all = ["paths", "list"])]
    json: bool,
}

/// Parses --budget.
fn budget(text: &str) -> Result<Allowed, String> {
    match text.parse()? {
        Allowed::Bytes(0) | Allowed::Percent(0) => Err("a budget of 0 keeps nothing".into()),
        allowed => Ok(allowed),
    }
}

/// The time that the keeper has to end.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let done = match args.status {
        true => status_file::show(args.json),
        false if args.ready => status_file::wait(),
        false => keep(args),
    };
    Ok(done.unwrap_or_else(|problem| problem.report()))
}

fn keep(args: &Args) -> Result<ExitCode, Problem> {
    // Blocked before there are threads, which inherit it.
    let signals = blocked_signals().map_err(|e| Problem::of("cannot catch signals", e))?;
    let prometheus = metrics_file(args)?;
    let status = said(status_file::create(), |e| {
        format!("there will be no status for --status: {e}")
    });
    let status = status.map(SharedFile::new);
    let trigger = said(pressure::trigger(), |e| {
        format!(
            "memory pressure is not reported ({e}); the available memory is looked at every 5 s"
        )
    });
    let settings = Settings {
        paths: args.paths.clone(),
        list: args.list.clone(),
        budget: args.budget,
        rate: args.rate.map(|Size(rate)| rate),
        interval: Duration::from_secs(args.interval.into()),
        lock: args.lock,
        one_file_system: args.one_file_system,
        prometheus,
        status,
    };
    let of_prometheus = settings.prometheus.iter().map(|(_, file)| file.clone());
    let written: Vec<SharedFile> = of_prometheus.chain(settings.status.clone()).collect();
    let watches = Watches::new();
    let inotify = watches.descriptor();
    let queue = Arc::new(EventQueue::default());
    // The keeper's end is closed when it ends.
    let (ended, ends) = std::io::pipe().map_err(|e| Problem::of("pipe", e))?;
    let (its, is_watched) = (queue.clone(), trigger.is_some());
    let floor = Arc::new(Floor::default());
    let lookout = args.lock.then(|| Lookout::new(floor.clone()));
    let keeper = thread::Builder::new().name("keeper".into()).spawn(move || {
        let _ends = ends;
        Keeper::new(settings, watches, its, is_watched, floor).map(Keeper::run)
    });
    let keeper = keeper.map_err(|e| Problem::of("cannot start a thread", e))?;
    let mut sources = Sources {
        signals,
        inotify,
        trigger,
        lookout,
        ended,
    };
    let stopped = sources.forward(&queue);
    if stopped && !sources.has_ended(GRACE) {
        // It waits for a device that does not answer. The kernel releases all locks.
        written.iter().for_each(SharedFile::remove);
        return Ok(ExitCode::SUCCESS);
    }
    match keeper.join() {
        Ok(Ok(())) => Ok(ExitCode::SUCCESS),
        Ok(Err(why)) => Err(Problem::Failed(why)),
        Err(_) => Err(Problem::Failed("the keeper has failed".into())),
    }
}

/// Blocks the signals that end the verb or have it read its paths again, and returns their source.
fn blocked_signals() -> Result<SignalFd, nix::errno::Errno> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    SignalFd::with_flags(&signals, flags)
}

/// The value. On an error, prints a message.
fn said<T, E>(result: Result<T, E>, message: impl FnOnce(E) -> String) -> Option<T> {
    result
        .map_err(|e| say(format_args!("nowait: {}", message(e))))
        .ok()
}

/// The file of --prometheus, and its path.
fn metrics_file(args: &Args) -> Result<Option<(PathBuf, SharedFile)>, Problem> {
    let Some(path) = &args.prometheus else {
        return Ok(None);
    };
    match prometheus_file(path.clone()) {
        Ok(file) => Ok(Some((path.clone(), file))),
        Err(why) => {
            let path = DisplayPath(path);
            let instead = "remove it, or name another file";
            Err(Problem::Usage(format!("{path} {why}; {instead}")))
        }
    }
}

/// The sources of events.
struct Sources {
    signals: SignalFd,
    inotify: Option<Arc<OwnedFd>>,
    trigger: Option<File>,
    /// Only with --lock.
    lookout: Option<Lookout>,
    ended: PipeReader,
}

impl Sources {
    /// Forwards events to the keeper until it ends or a signal asks to stop. Returns true if a signal
    /// has asked.
    fn forward(&mut self, queue: &EventQueue) -> bool {
        let interval = notify::interval();
        let mut next = interval.map(|_| Instant::now());
        loop {
            if let (Some(at), Some(interval)) = (next, interval)
                && Instant::now() >= at
            {
                notify::alive();
                next = Some(Instant::now() + interval);
            }
            if self.lookout.as_mut().is_some_and(Lookout::is_short) {
                queue.post(|events| events.memory = true);
                queue.interrupt();
            }
            let look = self.lookout.as_ref().map(|lookout| lookout.next);
            let first = next.into_iter().chain(look).min();
            let wait = first.map(|at| at.saturating_duration_since(Instant::now()));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            let mut polled = vec![
                PollFd::new(&self.ended, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            if let Some(inotify) = &self.inotify {
                polled.push(PollFd::new(&**inotify, PollFlags::IN));
            }
            if let Some(trigger) = &self.trigger {
                polled.push(PollFd::new(trigger, PollFlags::PRI));
            }
            // After an error all are looked at.
            let _ = poll(&mut polled, wait.as_ref());
            if !polled[0].revents().is_empty() {
                return false;
            }
            let has_pressure = self.trigger.is_some()
                && polled
                    .last()
                    .is_some_and(|last| last.revents().contains(PollFlags::PRI));
            if self.take_signals(queue) {
                return true;
            }
            if has_pressure {
                queue.post(|events| events.pressure = true);
                queue.interrupt();
            }
            if let Some(inotify) = &self.inotify {
                let mut more = events::Events::default();
                if watch::read(inotify, &mut more) {
                    queue.post(|events| events.add(more));
                }
            }
        }
    }

    /// Forwards signals. Returns true if one has asked to stop.
    fn take_signals(&self, queue: &EventQueue) -> bool {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGHUP as u32 {
                notify::reloading();
                queue.post(|events| events.reload = true);
            } else {
                notify::stopping();
                queue.post(|events| events.stop = true);
                queue.interrupt();
                return true;
            }
        }
        false
    }

    /// Waits for the end of the keeper.
    fn has_ended(&self, wait: Duration) -> bool {
        let wait = Timespec::try_from(wait).ok();
        let mut polled = [PollFd::new(&self.ended, PollFlags::IN)];
        poll(&mut polled, wait.as_ref()).is_ok_and(|ready| ready > 0)
    }
}
