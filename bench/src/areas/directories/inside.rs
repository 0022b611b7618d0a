//! What a process of `bench dir` does with a directory: one by one, as a scan, or behind a readahead.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use nowait::StatxMask;
use nowait::scan::{self, Limits, Xattrs};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, StatxFlags, openat, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::window::Window;
use nowait_cli::problem::Problem;
use nowait_cli::proc;

/// Which of our own ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// getdents64(2), and statx(2) of each name in turn, as programs do it.
    Getdents,
    /// The library's scan.
    Xgetdents,
    /// The library's readahead, and the first way beside it.
    Dirreadahead,
}

impl Way {
    /// As a word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Way::Getdents => "getdents",
            Way::Xgetdents => "xgetdents",
            Way::Dirreadahead => "dirreadahead",
        }
    }
}

/// What one process is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    way: Way,
    window: Window,
    directory: PathBuf,
    #[arg(long)]
    xattr: bool,
}

/// The report of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Entries that were asked about.
    pub entries: u64,
    /// Of those, how many could not be.
    pub failed: u64,
    /// The most memory that the process had (VmHWM).
    pub peak_kib: Option<u64>,
    /// The most workers at once, of a scan or a readahead.
    pub workers: Option<usize>,
}

/// One turn.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let mut said = match args.way {
        Way::Getdents => one_by_one(args)?,
        Way::Xgetdents => scan(args)?,
        Way::Dirreadahead => {
            let ahead = scan::readahead(&args.directory, &Limits::new().xattrs(args.xattr))?;
            let said = one_by_one(args)?;
            Said {
                workers: Some(ahead.progress().workers),
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

/// What libraries take for a directory's names.
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
