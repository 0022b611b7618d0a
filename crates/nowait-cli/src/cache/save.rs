//! `nowait cache save`: notes which ranges of files are cached.

use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait::residency::{Answer, PageMap, page_map};
use rustix::fs::Stat;
use tempfile::NamedTempFile;

use super::snapshot::{MOST_RANGES, Snapshot, Writer};
use crate::bring::Stamp;
use crate::met::Met;
use crate::name::{Shown, plural};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::stop::Stop;
use crate::tree::{Found, Paths, Unopened};

/// Notes which ranges of files are in the page cache.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{AFTER}\n\n{}\n\n{CODES}", super::SHAPE))]
pub struct Args {
    /// Where to write it; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace FILE if it is a snapshot
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    paths: Paths,
}

const AFTER: &str = "\
FILE appears when the snapshot is whole. A file that exists is not replaced; with --force it is, if it
is a snapshot, and nothing else. Files of which nothing is cached are not noted, and a file with several
names is noted by the one that is met first.";

const CODES: &str = "\
Exit codes: 0 all noted, 1 something could not be, 2 usage or a FILE that is not to be replaced, 130
interrupted (FILE stays as it was).";

/// What keeps a visit from going on.
enum Ended {
    Stopped,
    Failed(io::Error),
}

/// What there is to note of one file, or why there is nothing.
type Told = Result<(Stat, PageMap), String>;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let name = &args.output;
    if name.as_os_str() == "-" {
        let (saved, code) = save(args, io::stdout().lock(), Vec::new(), &stop)?;
        eprintln!("{}", saved.sums);
        return Ok(code);
    }
    let failed = |e: io::Error| Problem::of(format_args!("cannot write {}", Shown(name)), e);
    let target = Target::new(name, args.force)?;
    // As a file that is made in the ordinary way: the umask decides who may read it.
    let file = tempfile::Builder::new()
        .prefix(".nowait-cache-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(target.directory())
        .map_err(failed)?;
    let own = vec![file.path().to_path_buf(), target.path.clone()];
    let (saved, code) = save(args, file, own, &stop)?;
    saved.out.as_file().sync_all().map_err(failed)?;
    target.put(saved.out)?;
    // Whoever closed the pipe does not want to know.
    let _ = writeln!(io::stdout(), "{}", saved.sums);
    Ok(code)
}

/// Where the snapshot is to be.
struct Target<'a> {
    /// As it was given.
    name: &'a Path,
    /// In the directory that the name leads to now.
    path: PathBuf,
    force: bool,
}

impl<'a> Target<'a> {
    /// A file that is not there; or by force a snapshot.
    fn new(name: &'a Path, force: bool) -> Result<Target<'a>, Problem> {
        let failed = |e: io::Error| Problem::of(format_args!("cannot write {}", Shown(name)), e);
        let last = name
            .file_name()
            .ok_or_else(|| Problem::Usage(format!("{} has no name of a file", Shown(name))))?;
        let directory = std::path::absolute(name).map_err(failed)?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        let directory = fs::canonicalize(directory).map_err(failed)?;
        let target = Target {
            name,
            path: directory.join(last),
            force,
        };
        target.check()?;
        Ok(target)
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Refuses what is not to be replaced.
    fn check(&self) -> Result<(), Problem> {
        let failed = |e| Problem::of(format_args!("cannot write {}", Shown(self.name)), e);
        match fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(failed(e)),
            Ok(meta) if !meta.is_file() => {
                return Err(self.refused("exists and is not a regular file", "name another file"));
            }
            Ok(_) if !self.force => return Err(self.exists()),
            Ok(_) => {}
        }
        let beside = "remove it, or name another file";
        let snapshot = match Found::named(self.path.clone(), 0).open() {
            Ok((file, _)) => Snapshot::check(file, "it".into()),
            Err(why) => return Err(self.refused(&format!("cannot be read: {why}"), beside)),
        };
        match snapshot {
            Ok(_) => Ok(()),
            Err(Problem::Failed(why)) => {
                Err(self.refused(&format!("is not a snapshot that is whole ({why})"), beside))
            }
            Err(problem) => Err(problem),
        }
    }

    /// Gives the snapshot its name. What has appeared there meanwhile is replaced only as before.
    fn put(&self, file: NamedTempFile) -> Result<(), Problem> {
        let put = if self.force {
            self.check()?;
            file.persist(&self.path)
        } else {
            file.persist_noclobber(&self.path)
        };
        match put {
            Ok(_) => Ok(()),
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Err(self.exists()),
            Err(e) => {
                let what = format_args!("cannot write {}", Shown(self.name)).to_string();
                Err(Problem::of(what, e.error))
            }
        }
    }

    fn exists(&self) -> Problem {
        self.refused(
            "exists",
            "name another file, or replace a snapshot with --force",
        )
    }

    fn refused(&self, why: &str, instead: &str) -> Problem {
        Problem::Usage(format!("{} {why}; {instead}", Shown(self.name)))
    }
}

/// A snapshot that is whole.
struct Saved<W> {
    out: W,
    sums: String,
}

/// Writes the snapshot, without the files that it is itself made of.
fn save<W: Write>(
    args: &Args,
    out: W,
    own: Vec<PathBuf>,
    stop: &Stop,
) -> Result<(Saved<W>, ExitCode), Problem> {
    let failed =
        |e: io::Error| Problem::of(format_args!("cannot write {}", Shown(&args.output)), e);
    let mut progress = Progress::of_files();
    let remarks = Remarks::beside(&progress);
    let mut saver = Saver {
        writer: Writer::new(BufWriter::new(out)).map_err(failed)?,
        remarks: &remarks,
        met: Met::new(&args.paths),
        own,
        files: 0,
        noted: 0,
        bytes: 0,
        other_names: 0,
    };
    let visited = args.paths.look(&remarks, look, |found, told| {
        if stop.asked() {
            return Err(Ended::Stopped);
        }
        saver.take(&found, told).map_err(Ended::Failed)?;
        progress.at(saver.files, format!("{} cached", Size(saver.bytes)));
        Ok(())
    });
    match visited {
        Err(Ended::Stopped) => return Err(Problem::Interrupted),
        Err(Ended::Failed(e)) => return Err(failed(e)),
        Ok(()) => {}
    }
    let (bytes, noted, files) = (Size(saver.bytes), saver.noted, saver.files);
    let out = saver.writer.end().map_err(failed)?;
    let mut sums = format!("noted {bytes} in {noted} of {files} files");
    if saver.other_names > 0 {
        sums += &format!(" ({})", plural(saver.other_names, "more name"));
    }
    let saved = Saved {
        out: out.into_inner().map_err(|e| failed(e.into_error()))?,
        sums,
    };
    Ok((saved, remarks.exit_code()))
}

/// Notes one file after the other.
struct Saver<'a, W: Write> {
    writer: Writer<BufWriter<W>>,
    remarks: &'a Remarks,
    met: Met,
    /// Files that the snapshot itself is in.
    own: Vec<PathBuf>,
    files: u64,
    noted: u64,
    bytes: u64,
    /// Of files that were noted, or looked at, by their first one.
    other_names: u64,
}

impl<W: Write> Saver<'_, W> {
    /// Notes one file.
    ///
    /// # Errors
    /// If it can't be written; what is wrong with the file is a remark.
    fn take(&mut self, found: &Found, told: Result<Told, Unopened>) -> io::Result<()> {
        let (stat, map) = match told {
            Ok(Ok(told)) => told,
            Ok(Err(why)) => {
                let why = format_args!("not noted: {why}");
                self.remarks.failure(&found.path, why);
                return Ok(());
            }
            Err(why) => {
                found.failed(self.remarks, why);
                return Ok(());
            }
        };
        let path = match found.absolute() {
            Ok(path) => path,
            Err(e) => {
                self.remarks.failure(&found.path, e);
                return Ok(());
            }
        };
        if self.own.contains(&path) {
            return Ok(());
        }
        if !self.met.first(&stat) {
            self.other_names += 1;
            return Ok(());
        }
        self.files += 1;
        self.noted += u64::from(map.cached() > 0);
        let stamp = Stamp::of(&stat);
        let mut resident = map.resident().map(|range| (range.start, range.end));
        loop {
            let ranges: Vec<(u64, u64)> = resident.by_ref().take(MOST_RANGES).collect();
            if ranges.is_empty() {
                return Ok(());
            }
            self.bytes += ranges.iter().map(|(from, to)| to - from).sum::<u64>();
            self.writer.note(&path, &stamp, &ranges)?;
        }
    }
}

/// What is cached of a file.
fn look(found: &Found) -> Result<Told, Unopened> {
    let (file, stat) = found.open()?;
    Ok(match page_map(&file, 0..u64::MAX) {
        Ok(Answer::Known { value, .. }) => Ok((stat, value)),
        Ok(Answer::Unknown(reason)) => Err(reason.to_string()),
        Err(e) => Err(e.to_string()),
    })
}
