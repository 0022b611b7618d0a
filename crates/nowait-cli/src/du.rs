//! `nowait du`: how much files and directories take, with all that is in them.
//!
//! ```text
//!  PATH ─► a walk: batches of one directory each ─► Met: counted before? ─► Tree: sums of directories
//!                                                                 lines ◄── those that are over
//! ```
//! A directory comes after all that is in it. What is held are the directories that are being walked,
//! and the files with several names that were met.
//!
//! # The JSON shape, version 1 (keys may be added within it)
//! ```text
//! {
//!   "du": 1,                          version of this shape
//!   "version": "0.1.0",               of nowait
//!   "apparent": bool,                 with --apparent-size
//!   "entries": [{
//!     "path",                         text; what is not UTF-8 in it is replaced
//!     "path_hex",                     the bytes of the path, only if it is not UTF-8
//!     "bytes"                         with all that is in it
//!   }],
//!   "total": {"bytes", "files", "directories",
//!             "other_names",          of files that were counted before: in none of the above
//!             "failed"}               what was said on standard error, and makes exit code 1
//! }
//! ```

mod met;
mod report;
mod tree;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait::Metadata;
use nowait::StatxMask;
use nowait::walk;
use rustix::fs::CWD;

use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::terminal::Terminal;

use met::Met;
use report::{Report, Totals};
use tree::{Over, Tree};

/// Shows how much space directories take, with all that is in them.
#[derive(clap::Args)]
#[command(after_long_help = "\
Space is what is allocated on the device, as `du -B1` has it; with --apparent-size the bytes that
could be read, as `du -b` has it (before coreutils 9.2: those of directories count). In bytes, on a
terminal rounded. A file with several names counts once, in the directory where it is met first, which may
be any of them; a directory that lies below two PATHs is shown with the first. Symbolic links are
not followed.

Every directory comes after all that is in it, directories of a tree of up to some thousands in the
order of their names; with -a, files come as they are found.

JSON (--json): {\"du\": 1, \"version\", \"apparent\", \"entries\": [{\"path\", \"path_hex\", \"bytes\"}],
\"total\": {\"bytes\", \"files\", \"directories\", \"other_names\", \"failed\"}}. path_hex, the bytes of the
path, is there only if they are not UTF-8. \"du\" is the version of this shape; keys may be added
within it.

Exit status: 0 all could be counted; 1 something could not, and standard error says what; 2 wrong
usage.")]
pub struct Args {
    /// Directories, and other files
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Show files, too, and not only directories
    #[arg(short, long)]
    all: bool,

    /// Count the bytes that could be read, not those that are allocated
    #[arg(long)]
    apparent_size: bool,

    /// Show only what is at most N directories below a PATH; 0 shows the PATHs alone
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    depth: usize,

    /// Stay on the filesystem of each PATH
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// What a file takes.
    fn bytes(&self, stat: &Metadata) -> u64 {
        match self.apparent_size {
            true => stat.len(),
            false => stat.blocks() * 512,
        }
    }
}

/// What has to be known of a file.
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
    let remarks = Remarks::beside(&progress);
    let mut report = Report::begin(Terminal::look(), args.json, args.apparent_size)?;
    let mut met = Met::new(args.paths.len() > 1);
    let mut totals = Totals::default();
    for path in &args.paths {
        let stat = match Metadata::statx(CWD, path, libc::AT_SYMLINK_NOFOLLOW, FIELDS) {
            Ok(stat) => stat,
            Err(why) => {
                remarks.failure(path, why);
                continue;
            }
        };
        let is_directory = stat.is_dir();
        if !met.first_named(path, &stat, is_directory) {
            totals.other_names += u64::from(!is_directory);
            continue;
        }
        totals.count(args.bytes(&stat), is_directory);
        if is_directory {
            let mut counter = Counter {
                args,
                root: stat.dev(),
                remarks: &remarks,
                progress: &mut progress,
                report: &mut report,
                met: &mut met,
                totals: &mut totals,
                unknown: HashSet::new(),
            };
            counter.directory(path, args.bytes(&stat))?;
        } else {
            remarks.aside(|| report.line(path, args.bytes(&stat)))?;
        }
    }
    drop(progress);
    report.end(&totals, remarks.failures())?;
    Ok(remarks.exit_code())
}

/// Counts one tree.
struct Counter<'a> {
    args: &'a Args,
    /// The device that it is on.
    root: u64,
    remarks: &'a Remarks,
    progress: &'a mut Progress,
    report: &'a mut Report,
    met: &'a mut Met,
    totals: &'a mut Totals,
    /// What could not be asked about, and has been remarked on; it may be a directory.
    unknown: HashSet<PathBuf>,
}

impl Counter<'_> {
    /// A tree whose root takes so many bytes by itself.
    fn directory(&mut self, path: &Path, bytes: u64) -> Result<(), Problem> {
        let options = walk::Options::new()
            .metadata(FIELDS)
            .one_filesystem(self.args.one_file_system);
        let mut walk = match options.blocking_open(path) {
            Ok(walk) => walk,
            Err(error) => {
                self.remarks.error(path, true, &error);
                self.remarks.aside(|| self.report.line(path, bytes))?;
                return Ok(());
            }
        };
        let mut tree = Tree::new(path, bytes, self.args.depth);
        while let Some(found) = walk.blocking_batch() {
            match found {
                Ok(found) => self.found(&found, &mut tree)?,
                // Nor opened: once is enough.
                Err(error) if error.operation() == "open" && self.is_unknown(&error) => {}
                Err(error) => self.remarks.error(path, false, &error),
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
        self.remarks.aside(|| {
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
                    self.remarks.error(found.place().path(), false, &error);
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
            if !self.met.first(stat, is_directory) {
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
                    self.remarks.aside(|| self.report.line(&path, bytes))?;
                }
            }
        }
        let done = self.totals.files + self.totals.directories;
        self.progress.at(done, Size(self.totals.bytes).to_string());
        Ok(())
    }
}
