//! `nowait du` shows the disk space used by directories and everything below them.
//!
//! ```text
//!  PATH ─► a walk: batches of one directory each ─► SeenInodes: counted before? ─► Tree: sums of directories
//!                                                                 lines ◄── those that are over
//! ```
//! A directory is printed after everything below it. Memory holds the directories that are being walked,
//! and the files with several names that were seen.
//!
//! # The JSON format, version 1 (keys may be added)
//! ```text
//! {
//!   "du": 1,                          version of this format
//!   "version": "0.1.0",               of nowait
//!   "apparent": bool,                 with --apparent-size
//!   "entries": [{
//!     "path",                         text; bytes that are not UTF-8 are replaced
//!     "path_hex",                     the bytes of the path, only if it is not UTF-8
//!     "bytes"                         of the file, or of the directory and everything below it
//!   }],
//!   "total": {"bytes", "files", "directories",
//!             "other_names",          further names of counted files: not in the numbers above
//!             "failed"}               failures reported on standard error; the exit code is 1
//! }
//! ```

mod report;
mod seen_inodes;
mod tree;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait::Metadata;
use nowait::StatxMask;
use nowait::walk;
use rustix::fs::CWD;

use crate::messages::Messages;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::size::Size;
use crate::terminal::Terminal;

use report::{Report, Totals};
use seen_inodes::SeenInodes;
use tree::{Over, Tree};

/// Shows the disk space used by directories and everything below them.
#[derive(clap::Args)]
#[command(after_long_help = "\
The size is the allocated space, like `du -B1`. With --apparent-size it is the file size, like `du -b`
(before coreutils 9.2: the sizes of directories count). Sizes are in bytes; on a terminal they are
rounded. A file with several names counts once, in the directory where it is found first. That can be any
of its directories. A directory that is below two PATHs is shown once, below the first PATH. Symbolic links are not
followed.

Every directory is printed after everything below it. In a tree of up to some thousand directories, they
are sorted by name. With -a, files are printed in the order in which they are found.

JSON (--json): {\"du\": 1, \"version\", \"apparent\", \"entries\": [{\"path\", \"path_hex\", \"bytes\"}],
\"total\": {\"bytes\", \"files\", \"directories\", \"other_names\", \"failed\"}}. path_hex has the bytes of the
path in hexadecimal; it is present only if the path is not UTF-8. The value of \"du\" is the version of
this format; later programs may add keys without changing it.

Exit status:
  0  success
  1  some files failed; each failure is reported on standard error
  2  wrong usage")]
pub struct Args {
    /// Directories or files
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Show files, too, not only directories
    #[arg(short, long)]
    all: bool,

    /// Count file sizes instead of allocated space
    #[arg(long)]
    apparent_size: bool,

    /// Show only entries at most N levels below a PATH. 0 shows only the PATHs
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    depth: usize,

    /// Skip directories on other filesystems than their PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The counted bytes of a file.
    fn bytes(&self, stat: &Metadata) -> u64 {
        match self.apparent_size {
            true => stat.len(),
            false => stat.blocks() * 512,
        }
    }
}

/// The queried metadata.
const FIELDS: StatxMask = StatxMask::TYPE
    .union(StatxMask::INO)
    .union(StatxMask::NLINK)
    .union(StatxMask::SIZE)
    .union(StatxMask::BLOCKS);

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(measure(args).unwrap_or_else(|problem| problem.report()))
}

fn measure(args: &Args) -> Result<ExitCode, Problem> {
    let mut progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let mut report = Report::begin(Terminal::look(), args.json, args.apparent_size)?;
    let mut seen = SeenInodes::new(args.paths.len() > 1);
    let mut totals = Totals::default();
    for path in &args.paths {
        let stat = match Metadata::statx(CWD, path, libc::AT_SYMLINK_NOFOLLOW, FIELDS) {
            Ok(stat) => stat,
            Err(why) => {
                messages.failure(path, why);
                continue;
            }
        };
        let is_directory = stat.is_dir();
        if !seen.insert_given(path, &stat, is_directory) {
            totals.other_names += u64::from(!is_directory);
            continue;
        }
        totals.count(args.bytes(&stat), is_directory);
        if is_directory {
            let mut counter = Counter {
                args,
                root: stat.dev(),
                messages: &messages,
                progress: &mut progress,
                report: &mut report,
                seen: &mut seen,
                totals: &mut totals,
                unknown: HashSet::new(),
            };
            counter.directory(path, args.bytes(&stat))?;
        } else {
            messages.without_progress(|| report.line(path, args.bytes(&stat)))?;
        }
    }
    drop(progress);
    report.end(&totals, messages.failures())?;
    Ok(messages.exit_code())
}

/// Counts one tree.
struct Counter<'a> {
    args: &'a Args,
    /// The device number of the root.
    root: u64,
    messages: &'a Messages,
    progress: &'a mut Progress,
    report: &'a mut Report,
    seen: &'a mut SeenInodes,
    totals: &'a mut Totals,
    /// Entries whose metadata query failed. The failure was reported. They may be directories.
    unknown: HashSet<PathBuf>,
}

impl Counter<'_> {
    /// Counts a tree. `bytes` is the size of its root directory alone.
    fn directory(&mut self, path: &Path, bytes: u64) -> Result<(), Problem> {
        let options = walk::Options::new()
            .metadata(FIELDS)
            .one_filesystem(self.args.one_file_system);
        let mut walk = match options.blocking_open(path) {
            Ok(walk) => walk,
            Err(error) => {
                self.messages.error(path, true, &error);
                self.messages
                    .without_progress(|| self.report.line(path, bytes))?;
                return Ok(());
            }
        };
        let mut tree = Tree::new(path, bytes, self.args.depth);
        while let Some(found) = walk.blocking_batch() {
            match found {
                Ok(found) => self.found(&found, &mut tree)?,
                // The failure of this entry was already reported.
                Err(error) if error.operation() == "open" && self.is_unknown(&error) => {}
                Err(error) => self.messages.error(path, false, &error),
            }
            self.show(tree.over())?;
        }
        self.show(tree.rest())
    }

    fn is_unknown(&self, error: &nowait::Error) -> bool {
        error.path().is_some_and(|path| self.unknown.contains(path))
    }

    fn show(&mut self, over: Vec<Over>) -> Result<(), Problem> {
        if over.is_empty() {
            return Ok(());
        }
        self.messages.without_progress(|| {
            let mut lines = over.iter();
            lines.try_for_each(|over| self.report.line(&over.path, over.bytes))
        })?;
        Ok(())
    }

    /// Counts entries of one directory.
    fn found(&mut self, found: &walk::Found, tree: &mut Tree) -> Result<(), Problem> {
        let Some(mut sum) = tree.directory(found.place()) else {
            return Ok(());
        };
        for entry in found.batch().iter() {
            let stat = match entry.metadata() {
                Some(Ok(stat)) => stat,
                Some(Err(error)) => {
                    self.messages.error(found.place().path(), false, &error);
                    self.unknown.extend(error.path().map(Path::to_owned));
                    continue;
                }
                None => continue,
            };
            if self.args.one_file_system && stat.dev() != self.root {
                continue;
            }
            let bytes = self.args.bytes(stat);
            let is_directory = stat.is_dir();
            if !self.seen.insert(stat, is_directory) {
                match is_directory {
                    true => sum.skip(entry.file_name()),
                    false => self.totals.other_names += 1,
                }
                continue;
            }
            self.totals.count(bytes, is_directory);
            if is_directory {
                sum.add_directory(entry.file_name(), bytes);
            } else {
                sum.add(bytes);
                if self.args.all && found.place().depth() < self.args.depth {
                    let path = found.place().path().join(entry.file_name());
                    self.messages
                        .without_progress(|| self.report.line(&path, bytes))?;
                }
            }
        }
        let done = self.totals.files + self.totals.directories;
        self.progress.at(done, Size(self.totals.bytes).to_string());
        Ok(())
    }
}
