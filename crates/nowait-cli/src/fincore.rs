//! `nowait fincore` shows how much of each file is in the page cache, which ranges, and how much is dirty.
//!
//! ```text
//!  Paths ─► look (threads): open, query residency ─► in order: counted before? ─► Totals
//!                                                                           └──► Report, or Top first
//! ```
//!
//! # The JSON format, version 1 (keys may be added)
//! ```text
//! {
//!   "fincore": 1,                     version of this format
//!   "version": "0.1.0",               of nowait
//!   "page_size": 4096,                bytes
//!   "files": [{
//!     "path",                         text; bytes that are not UTF-8 are replaced
//!     "path_hex",                     the bytes of the path, only if it is not UTF-8
//!     "size",                         in bytes, like every size here
//!     "pages", "cached_pages",        null: unknown, here and in the keys below
//!     "cached_bytes",                 memory in whole pages, so it can exceed "size"
//!     "dirty_bytes",                  changed, and writeback has not begun
//!     "writeback_bytes",              being written; both are null where only mincore answers
//!     "unqueried_pages",                in large holes that were not queried (only with mincore)
//!     "source": "cachestat" | "mincore" | null,
//!     "unknown",                      the reason if residency is unknown, otherwise null
//!     "counted",                      false: another name of a file that was already counted
//!     "cached_ranges": [[from, to]]   with --map: bytes of the file
//!   }],
//!   "total": {"files", "size", "pages", "cached_pages", "cached_bytes",
//!             "dirty_bytes", "dirty_unknown",       files whose dirty pages are unknown
//!             "writeback_bytes",
//!             "unknown": [{"why", "files", "size"}],   in "files" and "size", not in the pages
//!             "other_names",          further names of counted files: not in the numbers above
//!             "failed"}               failures reported on standard error; the exit code is 1
//! }
//! ```

mod json;
mod line;
mod report;
mod row;
mod strip;
mod top;
mod totals;

use std::process::ExitCode;

use crate::messages::Messages;
use crate::output::Output;
use crate::paths::Paths;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::seen_inodes::SeenInodes;
use crate::size::Size;
use crate::terminal::Terminal;

use report::Report;
use row::{RangeFormat, Row};
use top::Top;
use totals::Totals;

/// Shows how much of each file is in the page cache, without reading the files.
#[derive(clap::Args)]
#[command(after_long_help = "\
Columns:
  SIZE       size of the file
  CACHED     cached memory, in whole pages
  %          share of the file's pages that are cached; 100% means all of them
             and 0% means none
  DIRTY      changed pages whose writeback has not begun
  WRITEBACK  pages that are being written to the device
  SOURCE     the system call that counted: cachestat(2) or mincore(2)
`?` means unknown; the last lines give the reason. The kernel does not report which pages of a file are
cached to users who neither own the file nor may write to it. Such files are not in the sums of pages.
A second name of a file is shown but not counted in the total.

With --map, a strip below each file shows the file from its first byte to its last. A full block is
cached, a shaded block is partly cached, a dot is not cached.

JSON (--json): {\"fincore\": 1, \"version\", \"page_size\", \"files\": [{\"path\", \"path_hex\", \"size\",
\"pages\", \"cached_pages\", \"cached_bytes\", \"dirty_bytes\", \"writeback_bytes\", \"unqueried_pages\",
\"source\", \"unknown\", \"counted\", \"cached_ranges\"}], \"total\": {\"files\", \"size\", \"pages\",
\"cached_pages\", \"cached_bytes\", \"dirty_bytes\", \"dirty_unknown\", \"writeback_bytes\", \"unknown\":
[{\"why\", \"files\", \"size\"}], \"other_names\", \"failed\"}}. Sizes and ranges are in bytes. null means
unknown. path_hex has the bytes of the path in hexadecimal; it is present only if the path is not
UTF-8. cached_ranges is present only with --map. The value of \"fincore\" is the version of this
format; later programs may add keys without changing it.

Exit status:
  0  success
  1  some files failed (each failure is reported on standard error), or it is
     unknown how much of some files is cached (the last lines give the
     reasons)
  2  wrong usage")]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Draw a strip that shows which parts of each file are cached
    #[arg(long)]
    map: bool,

    /// Show only the N files with the most cached memory, largest first. 0 shows only the total
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// The progress is updated after this many files.
const STEP: u64 = 256;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(show(args).unwrap_or_else(|problem| problem.report()))
}

fn show(args: &Args) -> Result<ExitCode, Problem> {
    let terminal = Terminal::look();
    let format = match (args.map, args.json) {
        (false, _) => RangeFormat::None,
        (true, true) => RangeFormat::Ranges,
        (true, false) => RangeFormat::Strip(terminal),
    };
    let mut progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let mut seen = SeenInodes::new(&args.paths);
    let mut totals = Totals::default();
    let mut top = args.top.map(Top::new);
    let mut report = Report::begin(Output::new(terminal), args.json)?;
    // Rows printed to a terminal show the progress.
    let rows_come_by = terminal.watched && top.is_none();
    args.paths.examine(
        &messages,
        |found| row::examine(found, format),
        |found, examined| {
            let examined = match examined {
                Ok(examined) => examined,
                Err(why) => {
                    found.failed(&messages, why);
                    return Ok(());
                }
            };
            let row = Row {
                path: found.path,
                counted: seen.insert(&examined.stat),
                examined,
            };
            totals.add(&row);
            if !rows_come_by && totals.files.is_multiple_of(STEP) {
                progress.at(
                    totals.files,
                    format!("{} cached", Size(totals.cached_bytes())),
                );
            }
            match &mut top {
                Some(top) => top.consider(row),
                None => report.row(&row)?,
            }
            Ok::<(), Problem>(())
        },
    )?;
    drop(progress);
    for row in top.into_iter().flat_map(Top::into_rows) {
        report.row(&row)?;
    }
    report.end(&totals, messages.failures())?;
    Ok(match totals.unknown.0.is_empty() {
        true => messages.exit_code(),
        false => ExitCode::from(1),
    })
}
