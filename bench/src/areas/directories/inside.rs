//! The process of one turn: lists a directory name by name, with a scan, or behind a readahead.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use nowait::StatxMask;
use nowait::scan;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, StatxFlags, openat, statx};
use rustix::io::Errno;

use super::c_scan;
use super::said::Said;
use super::window::Window;
use nowait_cli::problem::Problem;
use nowait_cli::proc;

/// A way to list a directory within this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// getdents64(2), and statx(2) for each name in turn, as most programs do.
    Getdents,
    /// The library's scan.
    Xgetdents,
    /// The same scan through the C library.
    NwXgetdents,
    /// The library's readahead, with the first way at the same time.
    Dirreadahead,
}

/// The arguments of the hidden verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    way: Way,
    window: Window,
    directory: PathBuf,
}

/// Runs one turn and prints its report.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let mut said = match args.way {
        Way::Getdents => one_by_one(args)?,
        Way::Xgetdents => scan(args)?,
        Way::NwXgetdents => c_scan::scan(&args.directory)?,
        Way::Dirreadahead => {
            let ahead = scan::readahead(&args.directory, &scan::Options::new())?;
            let said = one_by_one(args)?;
            Said {
                workers: Some(ahead.stats().workers),
                ..said
            }
        }
    };
    said.peak_kib = proc::number_of(&proc::read("/proc/self/status"), "VmHWM:");
    println!(
        "{}",
        serde_json::to_string(&said).map_err(|e| Problem::of("JSON", e))?
    );
    Ok(ExitCode::SUCCESS)
}

fn scan(args: &Args) -> Result<Said, Problem> {
    let options = scan::Options::new().metadata(StatxMask::BASIC_STATS);
    let options = args.window.set(options);
    let mut said = Said::default();
    let mut scan = options.blocking_open(&args.directory)?;
    while let Some(batch) = scan.blocking_batch() {
        for entry in batch?.iter() {
            said.entries += 1;
            said.failed += u64::from(matches!(entry.metadata(), Some(Err(_))));
        }
    }
    said.workers = Some(scan.stats().workers);
    Ok(said)
}

/// Bytes of the buffer for names: as much as the C library takes.
const ROOM: usize = 32 << 10;

fn one_by_one(args: &Args) -> Result<Said, Problem> {
    let failed = |e: Errno| Problem::of(args.directory.display(), e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(rustix::fs::CWD, &args.directory, flags, Mode::empty()).map_err(failed)?;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let mut room = vec![MaybeUninit::uninit(); ROOM];
    let mut dirents = RawDir::new(&fd, &mut room);
    let mut said = Said::default();
    while let Some(dirent) = dirents.next() {
        let dirent = dirent.map_err(failed)?;
        let name = dirent.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        said.entries += 1;
        let asked = statx(&fd, name, flags, StatxFlags::BASIC_STATS);
        said.failed += u64::from(asked.is_err());
    }
    Ok(said)
}
