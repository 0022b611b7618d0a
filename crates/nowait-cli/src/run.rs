//! `nowait run` runs a program, and reads ahead of it.

mod command;
mod detached;
mod group;
mod helper;
mod inherited;
mod libraries;
mod program;
mod report;
mod supervisor;

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use nowait_ahead_channel::{
    Channel, LEARN_VARIABLE, Listening, SURVEY_VARIABLE, VARIABLE, has_filter,
};
use nowait_ahead_policy::Readahead;
use nowait_page_cache::{Allowed, Budget};

use crate::messages::say;
use crate::problem::Problem;

use crate::learn::Session;

use group::Group;
use helper::{Helper, Learning, Work};
use program::Program;

/// Runs a program, and reads directories and files into the kernel's caches ahead of it.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{DETAILS}\n\n{EXAMPLES}"))]
pub struct Args {
    /// Read ahead in the directories that the program opens; the default without --walk, --aio,
    /// --keep-cache and --learn
    #[arg(long)]
    ahead: bool,

    /// Also read the first 512 KiB of the files of a directory that the program lists and whose
    /// files it opens in an order
    #[arg(long)]
    data: bool,

    /// Make the program's POSIX AIO asynchronous: libnowait_aio.so
    #[arg(long)]
    aio: bool,

    /// Walk PATH ahead of the program, which may be static or written in Go. Can be repeated
    #[arg(long, value_name = "PATH")]
    walk: Vec<PathBuf>,

    /// Evict what the program has added to the page cache
    #[arg(long)]
    keep_cache: bool,

    /// Learn what the program uses, and load that when it starts the next time. Without NAME, each
    /// program with its arguments has a profile of its own
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "",
        conflicts_with = "keep_cache")]
    learn: Option<String>,

    /// At the end, print what was read ahead, used and wasted, and the residency of the program's files
    #[arg(long)]
    stats: bool,

    /// Wait until evictions, profiles and reports are complete, and nothing is read ahead any more. The program is a child of nowait run then
    #[arg(long)]
    wait: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const AHEAD: &str = "libnowait_ahead.so";

const DETAILS: &str = "\
`nowait run` executes the program in its own process, as env(1) does. So the program has the process ID, the parent, the children,
the descriptors, the terminal, the limits and the signals that it has without `nowait run`. A helper, a process that is no
child of the program, reads ahead beside it. Reports, evictions and profiles may be complete only some time after the program
has ended. Scripts that then look at the page cache, or unmount a filesystem, use --wait.
If umount(2) of the program fails with EBUSY, the helper closes what it reads on that mount, and the call is repeated.

With --wait, and as process 1 of a PID namespace, `nowait run` stays as the parent of the program instead, and ends after the helper,
at most 30 seconds after the program. The helper closes all that it has read before, unless a disk or a server does not answer
for two seconds. The output and the exit status are those of the program. Signals that processes send to `nowait
run` are passed to the program. Its process ID and its parent are not those that it has without `nowait run`, and it gets a signal to
the whole process group twice.

The program does the same as without `nowait run`. A library that is preloaded (ld.so(8)) reports which directories the program
lists, and how long its calls of stat(2) take. The library makes no system call in a program with a sandbox (seccomp(2)). It has
no thread and no lock, needs at most 1 KiB of the stack of a call, and reads a path only after the kernel has read it. Its memory and the
shared memory by which it reports are mapped in the program, and count for mlockall(2). No other mapping and no descriptor of it appears in
a program, with these exceptions: ld.so(8) opens the library, and the library the shared memory, before the program starts; with --learn,
/proc/self/maps and pagemap are open while a process ends or executes another program; and with --keep-cache, where the kernel has no
cachestat(2) for a file (before Linux 6.5, on overlayfs and on EROFS), at most 2 MiB of it are mapped without access for a moment,
unless mlockall(2) is in force. A program that watches files (inotify(7)) also sees that the helper opens and reads them. The
environment has LD_PRELOAD and names that begin with NOWAIT_. LD_PRELOAD has the text $PLATFORM, which ld.so(8) expands. A script
that evaluates the value of the variable again must quote it. If the program opens a large directory that is not cached, `nowait run` lists it with many requests in flight, and loads some thousands
of its inodes. If calls of stat(2) wait for the disk, it loads the inodes of the directory, and of the directories below it that
the program enters. It stays a bounded number of inodes ahead. In a tree it is ahead by 32 directories, and by more if the
program uses the subdirectories of a directory one after the other: by four times the square of the number of these steps. With --data, and if the program lists these directories and opens
their files by inode number, by name, or as they are listed, it also reads the beginning of the next files: one after the second
file, four after the third, nine after the fourth, within a tenth of the available memory. That ends if the program does not open
most of them. A few directories are not read ahead, for comparison. If the program is no slower in them, readahead pauses, and ends if that remains so. On a disk that reports that
it rotates, and whose requests take 2 ms or longer, nothing is loaded, except with --walk.

A program that is static or setuid, of 32 bits, or with another C library than glibc runs as without `nowait run`, and nothing
is read ahead of it. For a program in Go, such as restic or rclone, use --walk with the directories that it reads: inotify(7)
reports its progress. ld.so(8) prints an error in a program that is started in another root directory (chroot(1)), where the
library does not exist. The library of --aio makes system calls, as the C library does; see nowait-aio(7) for programs with a
sandbox.

With --keep-cache, the program runs in a memory control group of its own (cgroups(7)). When the program has
ended, the pages that it has added to the page cache are evicted once they are written to the disk, and the group is removed. Pages
that were cached before stay. Pages that the program has read first go, also if another program uses them now. This needs the right
to make the group: root with version 1, or a group above this one that was delegated with version 2. In a service or a scope of
systemd(1) with version 2, no group is made: the group would be beside the unit, and outlive it. With version 1, the group has
the limit of the group that `nowait run` was in; with version 2, it has none of its own.

Without that right, the preloaded library asks for the residency of each file that the program opens, of large files before each part
is read, and the other pages are evicted behind the program: of large files in windows of 8 MiB, and of others when they are closed. No page is evicted of files that the user neither owns nor may write, of files in a process with a
sandbox (in a container, `nowait run` says so at the start), and of files that the library does not see: programs themselves, their libraries, and files of static programs and those
in Go. Files that are read by pread(2) are evicted when they are closed. `nowait run` has a file open only while it evicts it.

Files that --data reads ahead are surveyed in both cases, and evicted when the program has opened and closed them, or has ended.
No page is evicted of those that the user neither owns nor may write. With either, posix_fadvise(2) with POSIX_FADV_DONTNEED evicts nothing, since it would also evict pages that were cached before, and
copy_file_range(2) copies 8 MiB after 8 MiB, unless the process has a limit of file sizes (RLIMIT_FSIZE). If the helper is killed, pages that were not evicted yet stay. The group stays until
the next `nowait run --keep-cache`. Data that is not written after 10 seconds stays, too.

With --learn, the library also reports which files the program opens, how far it reads them, which paths it looks up and which
directories it lists. When a process ends or executes another program, the pages that it has mapped are asked for
(/proc/PID/pagemap); so are those of processes that run on, from time to time. A program that unmaps a file waits 1 or 2 ms for
the helper to ask for its pages, at most 200 times, and about 20 ms once if the helper does not. This becomes a profile. When the program is started the
next time, a process beside it loads the inodes, the directories and these ranges of files, many at a time, while it starts. The first
four runs are learnt, and some of the later ones, for 30 seconds. Paths that were not used in three of these are forgotten. A file that was replaced is loaded
completely if it has at most 256 KiB. A quarter of the available memory is loaded at most. Paths below the working directory
are loaded below the working directory of the next run. nowait-learn(1) shows and removes profiles. Of static programs, and of those in
Go, only mapped pages are learnt, and files that are open for some time. Nothing is learnt of a process with a sandbox.

Environment:
  NOWAIT_AHEAD=off     the library reports nothing
  NOWAIT_LIBRARY_DIR   the directory of libnowait_ahead.so and libnowait_aio.so";

const EXAMPLES: &str = "\
Examples:
  nowait run du -s /srv
  nowait run --data --stats -- rsync -a /srv/ backup:/srv/
  nowait run --keep-cache -- tar -cf a.tar /srv
  nowait run --walk /srv -- restic backup /srv
  nowait run --learn -- python3 app.py

Exit status:
  that of the program; it ends by the same signal
  2    wrong usage
  126  the program cannot be run
  127  the program was not found";

/// Runs the verb. Returns only if the program is not executed in this process.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(start(args).unwrap_or_else(|problem| problem.report()))
}

fn start(args: &Args) -> Result<ExitCode, Problem> {
    if args.command.is_empty() {
        let usage = "which program? `nowait run -- PROGRAM ARGUMENTS`";
        return Err(Problem::Usage(usage.to_owned()));
    }
    if !args.wait && !supervisor::is_init() {
        return Err(execute(args, None));
    }
    let missing = "nowait: the report is missing: the process that reads ahead does not answer";
    supervisor::run(args.stats.then_some(missing), |socket| {
        execute(args, Some(socket))
    })
}

/// Prepares and executes the program in this process. Returns only if that fails. `awaited` is the socket of a process
/// that waits for the helper.
fn execute(args: &Args, awaited: Option<UnixStream>) -> Problem {
    let prepared = Prepared::new(args, awaited);
    let (program, helper, group) = match prepared.and_then(Prepared::start) {
        Ok(started) => started,
        Err(problem) => return problem,
    };
    let mut helper = helper;
    helper.iter_mut().for_each(Helper::executes);
    let problem = program.execute();
    helper.into_iter().for_each(Helper::not_executed);
    group.iter().for_each(Group::cancel);
    problem
}

/// A channel of events, the variable of the environment that names it, and the descriptor of its memory.
struct Events {
    channel: Arc<Channel>,
    memory: OwnedFd,
    variable: &'static str,
    key: u64,
}

/// All that is needed to start a helper and to execute the program.
struct Prepared<'a> {
    program: Program<'a>,
    channels: Vec<Events>,
    work: Work,
}

impl<'a> Prepared<'a> {
    fn new(args: &'a Args, awaited: Option<UnixStream>) -> Result<Prepared<'a>, Problem> {
        let name = args.name();
        let ahead = args.is_ahead();
        let session = match &args.learn {
            Some(profile) => Session::new(profile, command::find(name), &args.command)?,
            None => None,
        };
        if (ahead || args.aio || session.is_some())
            && let Some(note) = command::note(name, ahead)
        {
            say(format_args!("nowait: {note}"));
        }
        let walk = args.walked()?;
        let (group, needs_surveys) = match args.keep_cache {
            true => enter_group(name),
            false => (None, false),
        };
        let is_kept = needs_surveys || group.is_some() && libraries::has(AHEAD);
        let libraries = [
            (ahead || session.is_some() || is_kept).then_some(AHEAD),
            args.aio.then_some("libnowait_aio.so"),
        ];
        let preloaded = libraries::preload(libraries.into_iter().flatten())
            .inspect_err(|_| group.iter().for_each(Group::cancel))?;
        let to = match needs_surveys {
            true => args.listens_to(),
            // In a group, the library only keeps the program from evicting pages.
            false => Listening::Advice,
        };
        let mut channels = Vec::new();
        let kept = Events::add(&mut channels, is_kept, SURVEY_VARIABLE, to);
        let events = Events::add(&mut channels, ahead, VARIABLE, args.listens_to());
        let to = Listening::Directories;
        let uses = Events::add(&mut channels, session.is_some(), LEARN_VARIABLE, to);
        let learning = session
            .zip(uses)
            .map(|(session, channel)| Learning { session, channel });
        let available = || Budget::new(Allowed::Percent(100)).max();
        let work = Work {
            walk,
            readahead: Readahead::new(events.clone(), args.data, available),
            events,
            surveys: kept.is_some() && needs_surveys,
            kept,
            group,
            learning,
            wants_report: args.stats,
            awaited,
        };
        let preloaded = preloaded.map(|value| (libraries::PRELOAD, value));
        let program = Program {
            command: &args.command,
            variables: preloaded.into_iter().collect(),
        };
        Ok(Prepared {
            program,
            channels,
            work,
        })
    }

    /// Starts the helper, if there is work for one. Without one, the program runs as usual, unless trees were to be
    /// walked.
    fn start(self) -> Result<(Program<'a>, Option<Helper>, Option<Group>), Problem> {
        let Prepared {
            mut program,
            channels,
            work,
        } = self;
        if !work.is_any() {
            work.skip();
            return Ok((program, None, None));
        }
        let (mut group, walks) = (work.group.clone(), !work.walk.is_empty());
        let memory: Vec<&OwnedFd> = channels.iter().map(|it| &it.memory).collect();
        let helper = match Helper::start(work, &memory) {
            Ok(helper) => helper,
            Err(problem) => {
                group.iter().for_each(Group::cancel);
                if walks {
                    return Err(problem);
                }
                say(format_args!(
                    "nowait: {problem}: nothing is read ahead or kept"
                ));
                group = None;
                return Ok((program, None, group));
            }
        };
        for Events {
            memory,
            variable,
            key,
            ..
        } in channels
        {
            let value = format!("{}:{key:x}", helper.path_of(&memory));
            program.variables.push((variable, value.into()));
            // The helper has the descriptor. This one is closed when the program is executed.
        }
        Ok((program, Some(helper), group))
    }
}

impl Args {
    /// The name of the program.
    fn name(&self) -> &OsStr {
        let first = self.command.first();
        first.map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// The events that decide what is read ahead.
    fn listens_to(&self) -> Listening {
        match self.data {
            true => Listening::Files,
            false => Listening::Directories,
        }
    }

    /// The absolute paths of the trees that are walked.
    fn walked(&self) -> Result<Vec<PathBuf>, Problem> {
        let paths = self.walk.iter().map(std::path::absolute);
        let paths = paths.collect::<std::io::Result<_>>();
        paths.map_err(|e| Problem::of("the working directory", e))
    }

    /// Returns true if directories are read ahead that the program opens.
    fn is_ahead(&self) -> bool {
        let others = self.aio || self.keep_cache || self.learn.is_some();
        self.ahead || self.walk.is_empty() && (self.data || !others)
    }
}

impl Events {
    /// Makes a channel and adds it, if it `is_wanted` and there is memory.
    fn add(
        channels: &mut Vec<Events>,
        is_wanted: bool,
        variable: &'static str,
        to: Listening,
    ) -> Option<Arc<Channel>> {
        let events = is_wanted.then(|| Events::new(variable, to)).flatten()?;
        let channel = events.channel.clone();
        channels.push(events);
        Some(channel)
    }

    /// `None`, with a note for the user, if there is no memory.
    fn new(variable: &'static str, to: Listening) -> Option<Events> {
        let key = RandomState::new().build_hasher().finish();
        let created = Channel::create(key).inspect_err(|error| {
            say(format_args!(
                "nowait: cannot make shared memory: {error}: nothing is read ahead or kept"
            ));
        });
        let (channel, memory) = created.ok()?;
        channel.listen(to);
        Some(Events {
            channel: Arc::new(channel),
            memory,
            variable,
            key,
        })
    }
}

/// Enters a control group of the program's own. If that is not possible, returns true if files can
/// be surveyed instead.
fn enter_group(name: &OsStr) -> (Option<Group>, bool) {
    let error = match Group::enter() {
        Ok(group) => return (Some(group), false),
        Err(error) => error,
    };
    let filter = "the library makes no system call in a process with a filter of them (seccomp(2))";
    let filter = has_filter().then(|| filter.to_owned());
    let Some(note) = filter.or_else(|| command::note(name, false)) else {
        return (None, true);
    };
    say(format_args!(
        "nowait: {note}; cannot make a memory control group: {error}: the page cache is not kept"
    ));
    (None, false)
}
