//! `nowait fincore`: how much of each file is in the page cache, where, and how much of it is dirty.
//!
//! ```text
//!  Paths ─► look (threads): open, ask the library ─► in order: met? ─► Totals
//!                                                                └──► Report, or Top and then Report
//! ```
//!
//! # The JSON shape, version 1 (keys may be added within it)
//! ```text
//! {
//!   "fincore": 1,                     version of this shape
//!   "version": "0.1.0",               of nowait
//!   "page_size": 4096,                bytes
//!   "files": [{
//!     "path",                         text; what is not UTF-8 in it is replaced
//!     "path_hex",                     the bytes of the path, only if it is not UTF-8
//!     "size",                         bytes, as is every size here
//!     "pages", "cached_pages",        null: unknown, as for all that follows
//!     "cached_bytes",                 memory: whole pages, so it can be more than "size"
//!     "dirty_bytes",                  changed and not yet on their way to the device
//!     "writeback_bytes",              on their way; null, as dirty, where only mincore answers
//!     "unasked_pages",                in large holes that were not asked about (mincore alone)
//!     "source": "cachestat" | "mincore" | null,
//!     "unknown",                      why nobody can say; null where somebody can
//!     "counted",                      false: another name of a file that was counted before
//!     "cached_ranges": [[from, to]]   with --map: bytes of the file
//!   }],
//!   "total": {"files", "size", "pages", "cached_pages", "cached_bytes",
//!             "dirty_bytes", "dirty_unknown",       files whose dirty pages nobody can count
//!             "writeback_bytes",
//!             "unknown": [{"why", "files", "size"}],   in "files" and "size", not in the pages
//!             "other_names",          of files counted before: in none of the above
//!             "failed"}               what was said on standard error, and makes exit code 1
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

use crate::met::Met;
use crate::output::Output;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::terminal::Terminal;
use crate::tree::Paths;

use report::Report;
use row::{Drawing, Row};
use top::Top;
use totals::Totals;

/// Shows how much of files is in the page cache. Reads none of them.
#[derive(clap::Args)]
#[command(after_long_help = "\
Columns: SIZE of the file; CACHED memory, in whole pages; the share of its pages that are cached
(100% and 0% are said only of all and of none); DIRTY, changed and not yet on its way to the device;
WRITEBACK, on its way; SOURCE, the call that counted. `?` is unknown, and the last lines say why; it
is never counted as cached or not cached. A file that is met under a second name is shown, and is
not counted in the total.

With --map, each strip is the whole file from its first byte to its last: a full block is cached, a
shade is cached in part, a dot is not cached.

JSON (--json): {\"fincore\": 1, \"version\", \"page_size\", \"files\": [{\"path\", \"path_hex\", \"size\",
\"pages\", \"cached_pages\", \"cached_bytes\", \"dirty_bytes\", \"writeback_bytes\", \"unasked_pages\",
\"source\", \"unknown\", \"counted\", \"cached_ranges\"}], \"total\": {\"files\", \"size\", \"pages\",
\"cached_pages\", \"cached_bytes\", \"dirty_bytes\", \"dirty_unknown\", \"writeback_bytes\", \"unknown\":
[{\"why\", \"files\", \"size\"}], \"other_names\", \"failed\"}}. Sizes and ranges are in bytes; null is
unknown. path_hex, the bytes of the path, is there only if they are not UTF-8, cached_ranges only
with --map. \"fincore\" is the version of this shape; keys may be added within it.

Exit status: 0 all could be said; 1 some could not, and what was is said on standard error or, for
residency that is unknown, in the last lines; 2 wrong usage.")]
pub struct Args {
    #[command(flatten)]
    paths: Paths,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Draw where in each file its cached pages are
    #[arg(long)]
    map: bool,

    /// Show only the N files with the most cached memory, the largest first; 0 shows the total alone
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// Between two looks at the progress.
const STEP: u64 = 256;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    Ok(show(args).unwrap_or_else(|problem| problem.report()))
}

fn show(args: &Args) -> Result<ExitCode, Problem> {
    let terminal = Terminal::look();
    let drawing = match (args.map, args.json) {
        (false, _) => Drawing::None,
        (true, true) => Drawing::Ranges,
        (true, false) => Drawing::Strip(terminal),
    };
    let mut progress = Progress::of_files();
    let remarks = Remarks::beside(&progress);
    let mut met = Met::new(&args.paths);
    let mut totals = Totals::default();
    let mut top = args.top.map(Top::new);
    let mut report = Report::begin(Output::new(terminal), args.json)?;
    // Rows that come by are progress enough.
    let rows_come_by = terminal.watched && top.is_none();
    args.paths.look(
        &remarks,
        |found| row::look(found, drawing),
        |found, looked| {
            let looked = match looked {
                Ok(looked) => looked,
                Err(why) => {
                    found.failed(&remarks, why);
                    return Ok(());
                }
            };
            let row = Row {
                path: found.path,
                counted: met.first(&looked.stat),
                looked,
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
    report.end(&totals, remarks.failures())?;
    Ok(match totals.unknown.0.is_empty() {
        true => remarks.exit_code(),
        false => ExitCode::from(1),
    })
}
