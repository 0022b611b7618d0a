//! `nowait ls`: the names in directories, with what statx(2) says of them.
//!
//! ```text
//!  PATH ─► named: files ──────────────────────────────► Report: names, columns, lines, JSON
//!      └─► directories ─► one scan each, sorted ─────────►┘ section by section
//!                      └► -R --sort none: one walk ───────►┘ batch by batch
//! ```
//! A directory that is to be sorted is held whole, and with -R comes before those that are in it, in
//! their order. A walk does not promise an order of directories, so only `--sort none` has one: it lists
//! many at the same time and holds no more than its window.
//!
//! # The JSON shape, version 1 (keys may be added within it)
//! ```text
//! {
//!   "ls": 1,                          version of this shape
//!   "version": "0.1.0",               of nowait
//!   "entries": [{
//!     "path",                         text; what is not UTF-8 in it is replaced
//!     "path_hex",                     the bytes of the path, only if it is not UTF-8
//!     "type": "file" | "directory" | "link" | "fifo" | "socket" | "character" | "block" | "unknown",
//!     "inode",                        as the directory has it where statx(2) failed
//!     "mode": "0644",                 null where statx(2) failed, as all that follows
//!     "links", "uid", "gid",
//!     "owner", "group",               null also where the system has no name for them
//!     "size", "allocated",            bytes
//!     "mtime", "mtime_ns",            seconds since 1970, and nanoseconds
//!     "target", "target_hex",         of a link, with the bytes as in path_hex
//!     "xattrs": [{"name", "name_hex", "value", "value_hex"}]   with --xattr
//!   }],
//!   "total": {"entries", "failed"}    failed: what was said on standard error, and makes exit code 1
//! }
//! ```

mod colour;
mod descent;
mod grid;
mod json;
mod long;
mod owner;
mod report;
mod row;
mod sort;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait::FileType;
use nowait::StatxMask;
use nowait::scan::{DirEntry, Order, Scan, Xattrs};
use nowait::{scan, walk};

use crate::messages::Messages;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::terminal::Terminal;

use descent::Descent;
use report::{Form, Report};
use row::{Named, Row};
use sort::Sort;

/// Lists directories.
#[derive(clap::Args)]
#[command(after_long_help = "\
Names that begin with a dot are shown with -a. A name that would break its line or hide something is
shown in the quotes that shells take ($'a\\nb'); with -0 its bytes are as they are.

On a terminal names come in columns, else one on a line. -l: mode, links, owner, group, size in bytes (of a
device its number), time of the last change in local time, name, and what a link leads to; `?` where that
could not be asked. With --sort none lines come as they are found, with memory that does not grow with
the directory, and with -R each is a whole path. Sorting is by bytes, not by the language's rules;
size and mtime put the largest and the newest first.

Colours are for terminals, as LS_COLORS has them; NO_COLOR turns them off.

A symbolic link that is given as a PATH is followed, but with -l, as ls does.

JSON (--json): {\"ls\": 1, \"version\", \"entries\": [{\"path\", \"path_hex\", \"type\", \"inode\", \"mode\",
\"links\", \"uid\", \"gid\", \"owner\", \"group\", \"size\", \"allocated\", \"mtime\", \"mtime_ns\", \"target\",
\"target_hex\", \"xattrs\": [{\"name\", \"name_hex\", \"value\", \"value_hex\"}]}], \"total\": {\"entries\",
\"failed\"}}. Sizes are in bytes; null is unknown. The _hex keys, the bytes, are there only where those
are not UTF-8. \"ls\" is the version of this shape; keys may be added within it.

Exit status: 0 all could be listed; 1 something could not, and standard error says what; 2 wrong usage.")]
pub struct Args {
    /// Directories to list, and other files to show
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,

    /// Show names that begin with a dot, too
    #[arg(short, long)]
    all: bool,

    /// List also the directories in there; symbolic links in there are not followed
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Show what kind of file each is, whose, how large and from when
    #[arg(short, long)]
    long: bool,

    /// Show extended attributes
    #[arg(long)]
    xattr: bool,

    /// In which order
    #[arg(long, value_enum, default_value_t, value_name = "BY")]
    sort: Sort,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Print whole paths, each ended by a NUL byte, as --files0-from takes them
    #[arg(short = '0', long, conflicts_with_all = ["json", "long", "xattr"])]
    null: bool,
}

impl Args {
    fn form(&self, terminal: Terminal) -> Form {
        if self.json {
            Form::Json
        } else if self.null {
            Form::Null
        } else if self.long {
            Form::Long
        } else if terminal.watched && self.sort != Sort::None && !self.xattr {
            Form::Grid
        } else {
            Form::Lines
        }
    }

    fn hides(&self, name: &OsStr) -> bool {
        !self.all && name.as_bytes().starts_with(b".")
    }
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(list(args).unwrap_or_else(|problem| problem.report()))
}

fn list(args: &Args) -> Result<ExitCode, Problem> {
    let terminal = Terminal::look();
    let form = args.form(terminal);
    let progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let report = Report::begin(form, terminal, args.recursive && args.sort == Sort::None)?;
    let asks = form.shows_metadata() || args.sort.is_by_metadata() || report.is_coloured();
    let mut lister = Lister {
        args,
        fields: asks.then_some(StatxMask::BASIC_STATS),
        xattrs: if args.xattr {
            Xattrs::Values
        } else {
            Xattrs::None
        },
        messages: &messages,
        progress,
        report,
    };
    for directory in lister.named()? {
        if args.recursive && args.sort == Sort::None {
            lister.walk(&directory)?;
        } else {
            lister.sections(&directory)?;
        }
    }
    let Lister { report, .. } = lister;
    report.end(messages.failures())?;
    Ok(messages.exit_code())
}

/// What is going on.
struct Lister<'a> {
    args: &'a Args,
    /// What statx(2) is asked for, if it is.
    fields: Option<StatxMask>,
    xattrs: Xattrs,
    messages: &'a Messages,
    progress: Progress,
    report: Report,
}

impl Lister<'_> {
    /// Shows the files that were named, and gives back the directories.
    fn named(&mut self) -> Result<Vec<PathBuf>, Problem> {
        let mut directories = Vec::new();
        let mut files = Vec::new();
        for path in &self.args.paths {
            match Named::look(path, !self.args.long, self.xattrs) {
                Ok(named) if named.kind() == FileType::Dir => directories.push(path.clone()),
                Ok(named) => files.push(named),
                Err(why) => self.messages.failure(path, why),
            }
        }
        let mut rows: Vec<_> = files.iter().map(Named::row).collect();
        rows.sort_by(|a, b| self.args.sort.compare(a, b));
        self.report.show(&rows, self.messages)?;
        Ok(directories)
    }

    /// A directory, and with -R those in it, each a section of its own.
    fn sections(&mut self, root: &Path) -> Result<(), Problem> {
        let mut options = scan::Options::new().xattrs(self.xattrs);
        if let Some(fields) = self.fields {
            options = options.metadata(fields);
        }
        if self.args.sort == Sort::Name {
            options = options.order(Order::Name);
        }
        let mut descent = Descent::from(root);
        while let Some(path) = descent.next() {
            match options.blocking_open(&path) {
                Ok(_) if self.args.recursive && descent.is_circle(&path) => {
                    self.messages.cycle(&path);
                }
                Ok(scan) => {
                    if self.args.recursive || self.args.paths.len() > 1 {
                        self.report.heading(&path)?;
                    }
                    descent.add(self.section(&path, scan)?);
                }
                Err(error) => self.messages.error(&path, path == root, &error),
            }
        }
        Ok(())
    }

    /// The entries of one directory. Gives back the directories among them if they are to be listed.
    fn section(&mut self, path: &Path, mut scan: Scan) -> Result<Vec<PathBuf>, Problem> {
        let mut whole: Vec<DirEntry> = Vec::new();
        while let Some(batch) = scan.blocking_batch() {
            match batch {
                Ok(batch) if self.args.sort == Sort::None => {
                    self.show(path, &Vec::from_iter(batch.iter()))?;
                }
                Ok(batch) => {
                    whole.extend(batch.iter());
                    let done = self.report.entries() + whole.len() as u64;
                    self.progress.at(done, String::new());
                }
                Err(error) => self.messages.error(path, false, &error),
            }
        }
        self.show(path, &whole)
    }

    /// All that is below a directory, as it is found.
    fn walk(&mut self, root: &Path) -> Result<(), Problem> {
        let mut options = walk::Options::new().xattrs(self.xattrs);
        if let Some(fields) = self.fields {
            options = options.metadata(fields);
        }
        let mut walk = match options.blocking_open(root) {
            Ok(walk) => walk,
            Err(error) => {
                self.messages.error(root, true, &error);
                return Ok(());
            }
        };
        while let Some(found) = walk.blocking_batch() {
            let found = match found {
                Ok(found) => found,
                Err(error) if error.path().is_some_and(|path| self.is_hidden(root, path)) => {
                    continue;
                }
                Err(error) => {
                    self.messages.error(root, false, &error);
                    continue;
                }
            };
            let directory = found.place().path();
            if !self.is_hidden(root, directory) {
                self.show(directory, &Vec::from_iter(found.batch().iter()))?;
            }
        }
        Ok(())
    }

    /// Whether a name on the way from the root to there is not to be shown.
    fn is_hidden(&self, root: &Path, path: &Path) -> bool {
        let mut below = path.strip_prefix(root).unwrap_or(path).iter();
        below.any(|name| self.args.hides(name))
    }

    /// Shows entries of one directory, sorted if they are to be. Gives back the directories among
    /// them if those are to be listed one after the other.
    fn show(&mut self, directory: &Path, entries: &[DirEntry]) -> Result<Vec<PathBuf>, Problem> {
        let shown = |entry: &&DirEntry| !self.args.hides(entry.file_name());
        let row = |entry| Row::new(directory, entry, self.messages);
        let mut rows: Vec<_> = entries.iter().filter(shown).filter_map(row).collect();
        if self.args.sort.is_by_metadata() {
            rows.sort_by(|a, b| self.args.sort.compare(a, b));
        }
        self.report.show(&rows, self.messages)?;
        if !self.args.recursive || self.args.sort == Sort::None {
            return Ok(Vec::new());
        }
        let directories = rows.iter().filter(|row| row.is_directory());
        Ok(directories.map(|row| row.path().into_owned()).collect())
    }
}
