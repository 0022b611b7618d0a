//! `nowait run` runs a program, and reads ahead of it.

mod child;
mod command;
mod group;
mod helper;
mod inherited;
mod libraries;
mod report;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use nowait_ahead_channel::{Channel, LEARN_VARIABLE, Listening, Moment, SURVEY_VARIABLE, VARIABLE};
use nowait_ahead_policy::Readahead;
use nowait_page_cache::{Allowed, Budget};

use crate::messages::say;
use crate::problem::Problem;

use crate::learn::Session;

use child::{Child, End, Signals};
use group::Group;
use helper::{Helper, Learning, Work};

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

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const AHEAD: &str = "libnowait_ahead.so";
/// No helper is started for a program that ends within this time, unless trees are walked. A helper
/// that starts later reads all events since the start of the program.
const HELPER_DELAY: Duration = Duration::from_millis(3);

const DETAILS: &str = "\
The program does the same as without `nowait run`. A library that is preloaded (ld.so(8)) reports which directories the program
lists, and how long its calls of stat(2) take. The library makes no system call in a program with a sandbox (seccomp(2)). If the
program opens a large directory that is not cached, `nowait run` lists it with many requests in flight, and loads some thousands
of its inodes. If calls of stat(2) wait for the disk, it loads the inodes of the directory, and of the directories below it that
the program enters. It stays a bounded number of inodes ahead. With --data, and if the program lists these directories and opens
their files by inode number, by name, or as they are listed, it also reads the beginning of the next files: one after the second
file, four after the third, nine after the fourth, within a tenth of the available memory. That ends if the program does not open
most of them. A few directories are not read ahead, for comparison. If the program is no slower in them, readahead pauses, and ends if that remains so. On a disk that reports that
it rotates, and whose requests take 2 ms or longer, nothing is loaded, except with --walk.

A program that is static or setuid, of 32 bits, or with another C library than glibc runs as without `nowait run`, and nothing
is read ahead of it. For a program in Go, such as restic or rclone, use --walk with the directories that it reads: inotify(7)
reports its progress. ld.so(8) prints an error in a program that is started in another root directory (chroot(1)), where the
library does not exist. The library of --aio makes system calls, as the C library does; see nowait-aio(7) for programs with a
sandbox.

With --keep-cache, the program runs in a memory control group of its own (cgroups(7)), which has no limit. When the program has
ended, the pages that it has added to the page cache are evicted once they are written to the disk, and the group is removed. Pages
that were cached before stay. Pages that the program has read first go, also if another program uses them now. This needs the right
to make the group: root with version 1, or a group above this one that was delegated with version 2.

Without that right, the preloaded library asks for the residency of each file that the program opens, and the other pages are evicted
behind the program: of large files in windows of 8 MiB, of others when they are closed, and of files that --data reads ahead when
the program has ended. No page is evicted of files that the user neither owns nor may write, of files in a process with a
sandbox, and of files that the library does not see: programs themselves, their libraries, and files of static programs and those
in Go. Files that are read by pread(2) are evicted when they are closed. While a program unmounts a filesystem, its files are let go.

With either, posix_fadvise(2) with POSIX_FADV_DONTNEED evicts nothing, since it would also evict pages that were cached before, and
copy_file_range(2) copies 8 MiB after 8 MiB. If `nowait run` is killed, pages that were not evicted yet stay. The group stays until
the next `nowait run --keep-cache`. Data that is not written after 10 seconds stays, too.

With --learn, the library also reports which files the program opens, how far it reads them, which paths it looks up and which
directories it lists. When a process ends or executes another program, the pages that it has mapped are asked for
(/proc/PID/pagemap); so are those of processes that run on, from time to time. This becomes a profile. When the program is started the
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
  that of the program; 128 + N after signal N
  2    wrong usage
  126  the program cannot be run
  127  the program was not found";

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(start(args).unwrap_or_else(|problem| problem.report()))
}

fn start(args: &Args) -> Result<ExitCode, Problem> {
    let (name, arguments) = args.command.split_first().ok_or_else(|| {
        Problem::Usage("which program? `nowait run -- PROGRAM ARGUMENTS`".to_owned())
    })?;
    let ahead = args.ahead
        || (args.walk.is_empty()
            && (args.data || !(args.aio || args.keep_cache || args.learn.is_some())));
    let mut command = Command::new(name);
    command.args(arguments);
    let learning = match &args.learn {
        Some(profile) => Session::new(profile, command::find(name), &args.command)?,
        None => None,
    };
    if (ahead || args.aio || learning.is_some())
        && let Some(note) = command::note(name, ahead)
    {
        say(format_args!("nowait: {note}"));
    }
    // The helper is in the group, too.
    let (mut group, needs_surveys) = match args.keep_cache {
        true => keep(name),
        false => (None, false),
    };
    let is_watched =
        ahead || learning.is_some() || needs_surveys || group.is_some() && libraries::has(AHEAD);
    let libraries = [
        is_watched.then_some(AHEAD),
        args.aio.then_some("libnowait_aio.so"),
    ];
    libraries::preload(&mut command, libraries.into_iter().flatten())?;
    // The descriptors of the memory stay open as long as this process runs.
    let listening = match needs_surveys {
        true => Listening::Directories,
        // In a group, the library only keeps the program from evicting pages.
        false => Listening::Advice,
    };
    let kept = (is_watched && args.keep_cache)
        .then(|| channel(&mut command, SURVEY_VARIABLE, listening))
        .flatten();
    let surveys = kept.as_ref().filter(|_| needs_surveys);
    let listening = match args.data {
        true => Listening::Files,
        false => Listening::Directories,
    };
    let events = ahead
        .then(|| channel(&mut command, VARIABLE, listening))
        .flatten();
    let shared = |channel: &(Arc<Channel>, OwnedFd)| channel.0.clone();
    let uses = learning
        .is_some()
        .then(|| channel(&mut command, LEARN_VARIABLE, Listening::Directories))
        .flatten();
    let learning = learning.zip(uses.as_ref());
    let learning = learning.map(|(session, uses)| Learning {
        session,
        channel: shared(uses),
    });
    let available = || Budget::new(Allowed::Percent(100)).max();
    let mut work = Work {
        walk: args.walk.clone(),
        readahead: Readahead::new(events.as_ref().map(shared), args.data, available),
        surveys: surveys.map(shared),
        learning,
        wants_report: args.stats,
    };
    let end = supervise(
        &command,
        &mut work,
        [&events, &kept].map(|it| it.as_ref().map(|it| &*it.0)),
    );
    let kept = group.as_mut().and_then(Group::end);
    if args.stats {
        kept.into_iter().for_each(say);
    }
    Ok(end?.exit())
}

/// Runs the program to its end, with a helper if there is work for one.
fn supervise(
    command: &Command,
    work: &mut Work,
    [events, kept]: [Option<&Channel>; 2],
) -> Result<End, Problem> {
    let mut helper = None;
    if work.walk.is_empty() && work.learning.is_some() {
        // It loads while the program starts. Without it, the program runs as usual.
        helper = Helper::start(work).ok();
    } else if !work.walk.is_empty() {
        let mut walks = Helper::start(work).map_err(|e| Problem::of("cannot walk", e))?;
        // Signals have their usual effect until the program starts.
        walks.is_ready()?;
        helper = Some(walks);
    }
    let begun = Moment::now();
    let mut child = Child::spawn(command, Signals::block()?)?;
    if let Some(channel) = events {
        // From now on the library measures the time of calls.
        channel.learn_speed(&begun);
    }
    let is_wanted = work.surveys.is_some() || events.is_some() && !child.ends_within(HELPER_DELAY);
    if helper.is_none() && is_wanted {
        // Nothing is read ahead or evicted if the helper cannot be started.
        helper = Helper::start(work).ok();
    }
    let end = child.wait();
    // Processes that the program leaves behind run on as without `nowait run`.
    if let Some(channel) = kept {
        channel.listen(Listening::Off);
    }
    let report = match helper {
        Some(helper) => helper.stop(work),
        None => Some(work.report()),
    };
    let missing = match work.wants_report {
        true => "nowait: the report is missing: the process that reads ahead does not answer",
        false => "",
    };
    // Without --stats, a helper reports only that something has failed.
    let report = report.filter(|_| work.wants_report || work.learning.is_some());
    let report = report.as_deref().map_or(missing, str::trim_end);
    if !report.is_empty() {
        say(report);
    }
    end
}

/// A channel, with a descriptor that stays open as long as programs attach. `None`, with a note for
/// the user, if there is no memory.
fn channel(
    command: &mut Command,
    variable: &str,
    to: Listening,
) -> Option<(Arc<Channel>, OwnedFd)> {
    let note = |problem: &_| {
        say(format_args!(
            "nowait: {problem}: nothing is read ahead or kept"
        ))
    };
    let (channel, memory) = libraries::channel(command, variable)
        .inspect_err(note)
        .ok()?;
    channel.listen(to);
    Some((Arc::new(channel), memory))
}

/// Enters a control group of the program's own. If that is not possible, returns true if files can
/// be surveyed instead.
fn keep(name: &OsStr) -> (Option<Group>, bool) {
    let error = match Group::enter() {
        Ok(group) => return (Some(group), false),
        Err(error) => error,
    };
    let Some(note) = command::note(name, false) else {
        return (None, true);
    };
    say(format_args!(
        "nowait: {note}; cannot make a memory control group: {error}: the page cache is not kept"
    ));
    (None, false)
}
