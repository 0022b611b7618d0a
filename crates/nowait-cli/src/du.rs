//! `nowait du` shows the disk space used by directories and everything below them.
//!
//! ```text
//!  PATH ─► a walk: batches of one directory each ─► SeenInodes: counted before? ─► Tree: sums of directories
//!                                                                 lines ◄── those that are over
//! ```
//! A directory is printed after everything below it. Memory holds the directories that are being
//! walked, and the files with several names that were seen.

mod exclude;
mod report;
mod seen_inodes;
mod size_options;
mod tree;
mod unit;
mod usage;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use nowait::scan::Batch;
use nowait::{Metadata, StatxMask, walk};
use nowait_page_cache::Batches;
use rustix::fs::CWD;

use crate::file_time::Which;
use crate::messages::{Messages, say};
use crate::name::plural;
use crate::paths::PathList;
use crate::problem::{INTERRUPTED, Problem};
use crate::progress::Progress;
use crate::size::Size;
use crate::stop::Stop;
use crate::terminal::Terminal;

use exclude::Excluded;
use report::{Form, Report, Totals};
use seen_inodes::SeenInodes;
use size_options::SizeOptions;
use tree::Tree;
use unit::Unit;
use usage::Usage;

/// Shows the disk space used by directories and everything below them.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_long_help = r#"The options mean the same as for du(1), and the sizes are the same. The size of a file is its allocated
space. Sizes are printed in KiB, rounded up; on a terminal as with -h. Apparent sizes are those of du before
coreutils 9.2: the sizes of directories count. Options that exclude each other exit with 2; -s -d 0 is one such
pair. The environment does not change the unit.

A file with several names counts once, in the directory where it is found first. That can be any of its
directories. A directory that is below two PATHs is shown once, below the first PATH. A directory that is one of
its own ancestors, by a bind mount, counts once. Symbolic links are not followed.

Every directory is printed after everything below it. In a tree of up to some thousand directories, they
are sorted by name. With -a, files are printed in the order in which they are found.

JSON (--json): one object.
  {
    "du": 1,               version of this format
    "version",             of nowait
    "apparent",            true with --apparent-size
    "entries": [{
      "path",              bytes that are not UTF-8 are replaced
      "path_hex",          bytes of the path in hexadecimal, only if it is not
                           UTF-8
      "bytes",             of the file, or of the directory and everything
                           below it
      "time"               with --time: seconds since 1970
    }],
    "total": {
      "bytes", "files", "directories",
      "other_names",       further names of counted files
      "failed",            failures reported on standard error
      "interrupted"        true: the rest was not counted
    }
  }
A sum of 2^64 bytes or more is 18446744073709551615. Later programs may add keys without
changing the version.

Examples:
  nowait du -sh /srv/*               one line for each
  nowait du -h -d 1 --time /srv      the directories of /srv
  nowait du --exclude='*.o' -c a b   with a grand total

Exit status:
  0    success
  1    some files failed; each failure is reported on standard error
  2    wrong usage
  130  interrupted; the numbers so far are printed on standard error"#
)]
#[command(mut_arg("paths", |arg| arg.default_value(".")))]
pub struct Args {
    /// Show files, too, not only directories
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,

    /// Show only the total of each PATH
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,

    /// Show only entries at most N levels below a PATH
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,

    /// Show a grand total at the end
    #[arg(short = 'c', long, conflicts_with = "json")]
    total: bool,

    #[command(flatten)]
    sizes: SizeOptions,

    /// Skip directories on other filesystems than their PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Skip files whose path matches a pattern of the shell. The pattern is compared with the whole
    /// path and with what follows each slash in it
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Show the latest time of the files in each directory: by default that of the last change of
    /// the contents
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "mtime")]
    time: Option<TimeWord>,

    /// End each line with a NUL byte instead of a line break
    #[arg(short = '0', long, conflicts_with = "json")]
    null: bool,

    #[command(flatten)]
    list: PathList,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// The words of --time.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TimeWord {
    /// Last change of the contents
    Mtime,
    /// Last access
    #[value(alias = "access", alias = "use")]
    Atime,
    /// Last change of the inode
    #[value(alias = "status")]
    Ctime,
}

impl Args {
    /// The usage of a file.
    fn usage(&self, stat: &Metadata) -> Usage {
        Usage {
            bytes: match self.sizes.apparent {
                true => stat.len(),
                false => stat.blocks().saturating_mul(512),
            },
            time: self.which().and_then(|which| which.of(stat)),
        }
    }

    fn which(&self) -> Option<Which> {
        Some(match self.time? {
            TimeWord::Mtime => Which::Modified,
            TimeWord::Atime => Which::Accessed,
            TimeWord::Ctime => Which::Changed,
        })
    }

    fn form(&self, terminal: Terminal) -> Form {
        if self.json {
            let apparent = self.sizes.apparent;
            return Form::Json { apparent };
        }
        let unit = self.sizes.unit.unwrap_or(match terminal.watched {
            true => Unit::Human,
            false => Unit::Bytes(1 << 10),
        });
        Form::Lines {
            unit,
            times: self.time.is_some(),
            null: self.null,
        }
    }

    /// The depth of the deepest shown entries.
    fn depth(&self) -> usize {
        match self.summarize {
            true => 0,
            false => self.max_depth.unwrap_or(usize::MAX),
        }
    }

    /// The queried metadata.
    fn mask(&self) -> StatxMask {
        const ALWAYS: StatxMask = StatxMask::TYPE
            .union(StatxMask::INO)
            .union(StatxMask::NLINK)
            .union(StatxMask::SIZE)
            .union(StatxMask::BLOCKS);
        self.which().map_or(ALWAYS, |which| ALWAYS | which.mask())
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(measure(args).unwrap_or_else(|problem| problem.report()))
}

fn measure(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let terminal = Terminal::look();
    let mut progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let mut counter = Counter {
        args,
        excluded: Excluded::new(&args.exclude),
        messages: &messages,
        report: Report::begin(terminal, args.form(terminal))?,
        progress: &mut progress,
        seen: SeenInodes::new(args.list.may_overlap()),
        totals: Totals::default(),
        stop: &stop,
    };
    args.list.each(&messages, &stop, |path| {
        match counter.excluded.matches(path) {
            true => Ok(()),
            false => counter.path(path),
        }
    })?;
    let Counter {
        mut report, totals, ..
    } = counter;
    drop(progress);
    let interrupted = stop.asked();
    if args.total && !interrupted {
        report.line(Path::new("total"), totals.usage)?;
    }
    report.end(&totals, messages.failures(), interrupted)?;
    if interrupted {
        let (files, directories) = (plural(totals.files, "file"), totals.directories);
        let directories = plural(directories, "directory");
        let size = Size(totals.usage.bytes);
        say(format_args!(
            "nowait: interrupted; counted so far: {size} in {files} and {directories}"
        ));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(messages.exit_code())
}

/// Counts trees and files.
struct Counter<'a> {
    args: &'a Args,
    excluded: Excluded,
    messages: &'a Messages,
    progress: &'a mut Progress,
    report: Report,
    seen: SeenInodes,
    totals: Totals,
    stop: &'a Stop,
}

/// The root of a tree, and what is known of the tree.
struct Root<'a> {
    path: &'a Path,
    device: u64,
    /// Entries whose metadata query failed. The failure was reported. They may be directories.
    unknown: HashSet<PathBuf>,
}

impl Counter<'_> {
    /// Counts a given path.
    fn path(&mut self, path: &Path) -> Result<(), Problem> {
        let path = with_one_slash(path);
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let stat = match Metadata::statx(CWD, path, flags, self.args.mask()) {
            Ok(stat) => stat,
            Err(why) => {
                self.messages.error(path, true, &why);
                return Ok(());
            }
        };
        let (is_directory, usage) = (stat.is_dir(), self.args.usage(&stat));
        if !self.seen.insert_given(path, &stat, is_directory) {
            self.totals.other_names += u64::from(!is_directory);
            return Ok(());
        }
        self.totals.count(usage, is_directory);
        if !is_directory {
            return self.line(path, usage);
        }
        let root = Root {
            path,
            device: stat.dev(),
            unknown: HashSet::new(),
        };
        self.directory(root, usage)
    }

    /// Counts a tree. `usage` is that of its root directory alone.
    fn directory(&mut self, mut root: Root<'_>, usage: Usage) -> Result<(), Problem> {
        let path = root.path;
        let excluded = self.excluded.clone();
        let mut options = walk::Options::new()
            .metadata(self.args.mask())
            .one_filesystem(self.args.one_file_system);
        if !self.args.exclude.is_empty() {
            options = options.filter_dirs(move |path, _| !excluded.matches(path));
        }
        let Some(batches) = Batches::open(path, &options, self.messages, self.stop) else {
            return self.line(path, usage);
        };
        let mut tree = Tree::new(path, usage, self.args.depth());
        for found in batches {
            match found {
                Ok(found) => self.found(&found, &mut root, &mut tree)?,
                // The failure of this entry was already reported.
                Err(error) if error.operation() == "open" && root.is_unknown(&error) => {}
                Err(error) => self.messages.error(path, false, &error),
            }
            if tree.is_large() {
                self.show(|show| tree.over(show))?;
            }
        }
        // The sums of an interrupted walk are not those of the directories.
        match self.stop.asked() {
            true => Ok(()),
            false => self.show(|show| tree.rest(show)),
        }
    }

    fn line(&mut self, path: &Path, usage: Usage) -> Result<(), Problem> {
        let report = &mut self.report;
        Ok(self
            .messages
            .without_progress(|| report.line(path, usage))?)
    }

    fn show(
        &mut self,
        over: impl FnOnce(&mut dyn FnMut(&Path, Usage) -> io::Result<()>) -> io::Result<()>,
    ) -> Result<(), Problem> {
        let report = &mut self.report;
        let mut line = |path: &Path, usage| report.line(path, usage);
        Ok(self.messages.without_progress(|| over(&mut line))?)
    }

    /// Counts entries of one directory.
    fn found(
        &mut self,
        found: &Batch,
        root: &mut Root<'_>,
        tree: &mut Tree,
    ) -> Result<(), Problem> {
        let Some(mut sum) = tree.directory(found.dir()) else {
            return Ok(());
        };
        let directory = found.dir();
        for entry in found.iter() {
            let stat = match entry.metadata() {
                Some(Ok(stat)) => stat,
                Some(Err(error)) => {
                    self.messages.error(&directory.path(), false, &error);
                    root.unknown.extend(error.path().map(Path::to_owned));
                    continue;
                }
                None => continue,
            };
            if self.args.one_file_system && stat.dev() != root.device {
                continue;
            }
            let is_directory = stat.is_dir();
            if is_directory && found.dir().is_within((stat.dev(), stat.ino())) {
                // A bind mount of an ancestor: it is counted there.
                continue;
            }
            let path = || entry.path();
            if !self.args.exclude.is_empty() && self.excluded.matches(&path()) {
                continue;
            }
            let usage = self.args.usage(stat);
            if !self.seen.insert(stat, is_directory) {
                match is_directory {
                    true => sum.skip(entry.file_name()),
                    false => self.totals.other_names += 1,
                }
                continue;
            }
            self.totals.count(usage, is_directory);
            if is_directory {
                sum.add_directory(entry.file_name(), usage);
            } else {
                sum.add(usage);
                if self.args.all && found.dir().depth() < self.args.depth() {
                    let report = &mut self.report;
                    self.messages
                        .without_progress(|| report.line(&path(), usage))?;
                }
            }
        }
        let done = self.totals.files + self.totals.directories;
        let counted = Size(self.totals.usage.bytes).to_string();
        self.progress.at(done, counted);
        Ok(())
    }
}

/// The path as du(1) prints it: with at most one slash at the end. `//` can be another directory
/// than `/`.
fn with_one_slash(path: &Path) -> &Path {
    let mut bytes = path.as_os_str().as_bytes();
    while bytes.len() > 2 && bytes.ends_with(b"//") {
        bytes = &bytes[..bytes.len() - 1];
    }
    Path::new(OsStr::from_bytes(bytes))
}

impl Root<'_> {
    fn is_unknown(&self, error: &nowait::Error) -> bool {
        error.path().is_some_and(|path| self.unknown.contains(path))
    }
}
