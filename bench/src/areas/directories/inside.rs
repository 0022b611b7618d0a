//! The process of one turn: lists a directory name by name, with a scan, or behind a readahead.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use nowait::StatxMask;
use nowait::scan::{self, Xattrs};
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
    #[arg(long)]
    xattr: bool,
}

/// Runs one turn and prints its report.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let mut said = match args.way {
        Way::Getdents => one_by_one(args)?,
        Way::Xgetdents => scan(args)?,
        Way::NwXgetdents => c_scan::scan(&args.directory, args.xattr)?,
        Way::Dirreadahead => {
            let which = if args.xattr {
                Xattrs::Names
            } else {
                Xattrs::None
            };
            let ahead = scan::readahead(&args.directory, &scan::Options::new().xattrs(which))?;
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
    let mut options = args
        .window
        .set(scan::Options::new().metadata(StatxMask::BASIC_STATS));
    if args.xattr {
        options = options.xattrs(Xattrs::Names);
    }
    let mut said = Said::default();
    let mut scan = options.blocking_open(&args.directory)?;
    while let Some(batch) = scan.blocking_batch() {
        for entry in batch?.iter() {
            said.entries += 1;
            let failed =
                matches!(entry.metadata(), Some(Err(_))) || matches!(entry.xattrs(), Some(Err(_)));
            said.failed += u64::from(failed);
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
    let mut names = vec![0; 4096];
    let mut said = Said::default();
    while let Some(dirent) = dirents.next() {
        let dirent = dirent.map_err(failed)?;
        let name = dirent.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        said.entries += 1;
        let asked = statx(&fd, name, flags, StatxFlags::BASIC_STATS).map(drop);
        let asked = asked.and_then(|()| match args.xattr {
            true => {
                let path = args.directory.join(OsStr::from_bytes(name.to_bytes()));
                rustix::fs::llistxattr(path, &mut names).map(drop)
            }
            false => Ok(()),
        });
        said.failed += u64::from(asked.is_err());
    }
    Ok(said)
}
