//! `nowait fincore` shows how much of each file is in the page cache, which ranges, and how much is
//! dirty.
//!
//! ```text
//!  Paths ─► look (threads): open, query residency ─► in order: counted before? ─► Totals
//!                                                                           └──► Report, or Top first
//! ```

mod column;
mod json;
mod process;
mod report;
mod row;
mod strip;
mod top;
mod totals;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::messages::Messages;
use crate::output::Output;
use crate::paths::{Kinds, Paths};
use crate::problem::{INTERRUPTED, Problem};
use crate::progress::Progress;
use crate::size::Size;
use crate::stop::Stop;
use crate::terminal::Terminal;

use column::{Columns, List};
use nowait_page_cache::{FileRef, LOOK, SeenInodes, examine};
use process::ProcessFiles;
use report::{Form, Report};
use row::{RangeFormat, Row};
use top::Top;
use totals::Totals;

/// Shows how much of each file is in the page cache, without reading the files.
#[derive(clap::Args)]
#[command(
    mut_arg("paths", |arg| arg.required_unless_present("pid")),
    after_long_help = r#"Columns (-o), by the names of fincore(1) of util-linux:
  SIZE              size of the file
  RES               cached memory, in whole pages
  PERCENT           share of the file's pages that are cached. 100% is
                    printed only if all pages are cached, 0% only if none are
  PAGES             cached pages
  FILE_PAGES        pages of the file
  DIRTY             changed memory whose writeback has not begun
  WRITEBACK         memory that is being written to the device
  EVICTED           memory that was cached, as far as the kernel remembers
  RECENTLY_EVICTED  of that, what was evicted a short time ago
  SOURCE            the system call that counted: cachestat(2) or mincore(2)
  FILE              path
DIRTY, WRITEBACK, EVICTED and RECENTLY_EVICTED have forms that end in _PAGES and count pages.

`?` means unknown; the last lines give the reason. The kernel does not report which pages of a file are
cached to users who neither own the file nor may write to it. Such files are not in the sums of pages.
A second name of a file is shown but not counted in the total. With -n, -o or --raw there is no total, and the
reasons are printed on standard error. Pseudo filesystems such as /proc are not entered.

A file on which another process holds a lease for writing (fcntl(2), F_SETLEASE) is not opened, because that
would break the lease. It is looked at through a duplicate of the process's own descriptor (pidfd_getfd(2)),
which needs the rights of ptrace(2), or reported as a failure. Leases of other PID namespaces are not known,
nor are those that are taken at that moment.

A PATH can also be a block device. Its pages are those that were read or written through the device, by a
database or a program such as dd, and the metadata of some mounted filesystems. They are not the contents of
files. Block devices below a directory are skipped.

With --pid, the files are those that the process has open or mapped: regular files and block devices, also
removed ones. Each is shown once, by the path in /proc/PID/fd or /proc/PID/maps. Processes of others need the
rights of ptrace(2).

The options differ from those of fincore(1) of util-linux in this: -r is accepted and ignored, where it means
--raw there; numbers of bytes below 1024 have no unit B; -J excludes -n and --raw, and sizes in
JSON are always numbers; the size of a block device is known.

With --map, a strip below each file shows the file from its first byte to its last. A full block is
cached, a shaded block is partly cached, a dot is not cached.

JSON (-J): one object. The keys of fincore(1) of util-linux mean the same here. Sizes and ranges are in
bytes. null means unknown. mincore(2) does not count dirty, writeback, evicted and recently_evicted. With -o, a
file has only these columns.
  {
    "format": 1,           version of this format
    "version",             of nowait
    "page_size",
    "fincore": [{
      "file",              path; bytes that are not UTF-8 are replaced
      "file_hex",          bytes of the path in hexadecimal, only if it is not
                           UTF-8
      "size",
      "res",               cached memory in whole pages; it can exceed "size"
      "percent",           text, as in the table
      "pages",             cached pages
      "file_pages",        pages of the file
      "dirty", "dirty_pages",
      "writeback", "writeback_pages",
      "evicted", "evicted_pages",
      "recently_evicted", "recently_evicted_pages",
      "source",            cachestat or mincore
      "unqueried_pages",   pages in large holes that were not queried
      "unknown",           reason if residency is unknown, otherwise null
      "counted",           false: another name of a file that was counted
      "ranges"             with --map: list of [FROM, TO]
    }],
    "total": {
      "files", "size", "res", "pages", "file_pages", "dirty", "writeback",
      "dirty_unknown",     files whose dirty pages are unknown
      "unknown": [{"why", "files", "size"}],
                           in "files" and "size", not in the other sums
      "other_names",       further names of counted files
      "failed",            failures reported on standard error
      "interrupted"        true: the rest was not examined
    }
  }
A sum of 2^64 bytes or more is 18446744073709551615. Later programs may add keys without
changing the version.

Examples:
  nowait fincore --top 10 /srv       the ten files with the most cached memory
  nowait fincore --map db/data       which parts of a file are cached
  nowait fincore --pid 4711          the files that a process uses
  nowait fincore --watch db          repeats the table until Ctrl-C
  nowait fincore -nbo RES FILE       for a script: cached bytes

Exit status:
  0    success
  1    some files failed (each failure is reported on standard error), or it
       is unknown how much of some files is cached (the last lines give the
       reasons)
  2    wrong usage
  130  interrupted; the results so far are printed"#
)]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    /// Show the files that these processes have open or mapped
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["paths", "files0_from"]
    )]
    pid: Vec<u32>,

    /// Show these columns. The list is below
    #[arg(short, long, value_name = "COLUMNS")]
    output: Option<List>,

    /// Print sizes in bytes
    #[arg(short, long, overrides_with = "human_readable")]
    bytes: bool,

    /// Print sizes with units: the default
    #[arg(long)]
    human_readable: bool,

    /// Print neither headings nor a total
    #[arg(short, long, conflicts_with = "json")]
    noheadings: bool,

    /// Separate columns by one blank, and print blanks in names as \x20
    #[arg(long, conflicts_with_all = ["json", "map"])]
    raw: bool,

    /// Print one JSON object instead of a table
    #[arg(short = 'J', long)]
    json: bool,

    /// Draw a strip that shows which parts of each file are cached
    #[arg(long)]
    map: bool,

    /// Show only the N files with the most cached memory, largest first. 0 shows only the total
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Repeat every SECONDS (2) until Ctrl-C. On a terminal, the table is redrawn
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = seconds,
        conflicts_with = "files0_from"
    )]
    watch: Option<Duration>,
}

/// Parses the interval of --watch.
fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse().ok().map(Duration::try_from_secs_f64);
    match parsed {
        Some(Ok(interval)) if interval >= Duration::from_millis(100) => Ok(interval),
        _ => Err("write a number of seconds, at least 0.1".into()),
    }
}

impl Args {
    fn form(&self, terminal: Terminal) -> Form {
        let mut columns = match (&self.output, self.json) {
            (Some(list), _) => Columns::new(list),
            (None, true) => Columns::new(&List::all()),
            (None, false) => Columns::fitting(terminal.width),
        };
        columns.in_bytes = self.bytes;
        columns.raw = self.raw;
        match (
            self.json,
            self.noheadings || self.raw || self.output.is_some(),
        ) {
            (true, _) => Form::Json {
                columns,
                selected: self.output.is_some(),
            },
            (false, true) => Form::Rows {
                columns,
                headings: !self.noheadings,
            },
            (false, false) => Form::Table(columns),
        }
    }

    /// The number of rows, if there is a limit. A picture that is redrawn has as many as fit beside the heading, the total
    /// and a few reasons.
    fn rows(&self, terminal: Terminal, redrawn: bool) -> Option<usize> {
        let fitting = terminal.height.map(|lines| lines.saturating_sub(5).max(1));
        self.top.or(fitting.filter(|_| redrawn))
    }

    fn ranges(&self, terminal: Terminal) -> RangeFormat {
        match (self.map, self.json) {
            (false, _) => RangeFormat::None,
            (true, true) => RangeFormat::Ranges,
            (true, false) => RangeFormat::Strip(terminal),
        }
    }
}

/// The progress is updated after this many files.
const STEP: u64 = 256;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let shown = match args.watch {
        None => Stop::on_signals().and_then(|stop| show(args, &stop)),
        Some(interval) => watch(args, interval),
    };
    Ok(shown.unwrap_or_else(|problem| problem.report()))
}

/// Shows the files again and again, until Ctrl-C.
fn watch(args: &Args, interval: Duration) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    loop {
        let next = Instant::now() + interval;
        let code = show(args, &stop)?;
        while Instant::now() < next && !stop.asked() {
            std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
        }
        if stop.asked() {
            return Ok(code);
        }
        if !Terminal::look().watched {
            writeln!(std::io::stdout())?;
        }
    }
}

fn show(args: &Args, stop: &Stop) -> Result<ExitCode, Problem> {
    let terminal = Terminal::look();
    let redrawn = args.watch.is_some() && terminal.watched;
    let mut progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let mut seen = SeenInodes::new(args.paths.may_overlap() || !args.pid.is_empty());
    let processes = ProcessFiles::of(&args.pid, &messages);
    let mut totals = Totals::default();
    let mut top = args.rows(terminal, redrawn).map(Top::new);
    let out = match redrawn {
        true => Output::redrawn(),
        false => Output::new(terminal),
    };
    let mut report = Report::begin(out, args.form(terminal))?;
    let ranges = args.ranges(terminal);
    // Rows printed to a terminal show the progress.
    let rows_come_by = terminal.watched && top.is_none();
    examine(
        |each| match args.pid.is_empty() {
            true => args
                .paths
                .visit(Kinds::RegularAndBlockDevices, &messages, stop, each),
            false => processes.visit(each),
        },
        FileRef::look,
        |file, stat| row::examine(file, stat, ranges),
        |found, examined| {
            let found = processes.named(found);
            let Ok(examined) = examined.map_err(|why| found.failed(&messages, why)) else {
                return Ok(());
            };
            let row = Row {
                path: found.path().into_owned(),
                counted: seen.insert(&examined.stat),
                examined,
            };
            totals.add(&row);
            if !rows_come_by && totals.files.is_multiple_of(STEP) {
                let cached = Size(totals.cached_bytes());
                progress.at(totals.files, format!("{cached} cached"));
            }
            match &mut top {
                Some(top) => top.consider(row),
                None => report.row(&row)?,
            }
            Ok::<(), Problem>(())
        },
    )?;
    drop(progress);
    if redrawn && stop.asked() {
        // The last complete picture stays.
        return Ok(messages.exit_code());
    }
    for row in top.into_iter().flat_map(Top::into_rows) {
        report.row(&row)?;
    }
    let interrupted = stop.asked() && args.watch.is_none();
    report.end(&totals, messages.failures(), interrupted)?;
    Ok(exit_code(&totals, &messages, interrupted))
}

fn exit_code(totals: &Totals, messages: &Messages, interrupted: bool) -> ExitCode {
    match totals.unknown.0.is_empty() {
        _ if interrupted => ExitCode::from(INTERRUPTED),
        true => messages.exit_code(),
        false => ExitCode::from(1),
    }
}
