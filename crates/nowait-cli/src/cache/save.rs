//! `nowait cache save`: notes which ranges of files are cached.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nowait::residency::{Answer, PageMap, page_map};
use rustix::fs::{FileType, Stat};
use tempfile::NamedTempFile;

use super::snapshot::{MOST_RANGES, Writer};
use crate::bring::Stamp;
use crate::met::Met;
use crate::name::{Shown, plural};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::remark::Remarks;
use crate::size::Size;
use crate::stop::Stop;
use crate::tree::{Found, Paths};

/// Notes which ranges of files are in the page cache.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{AFTER}\n\n{}\n\n{CODES}", super::SHAPE))]
pub struct Args {
    /// Where to write it; `-` is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    paths: Paths,
}

const AFTER: &str = "\
FILE is replaced when the snapshot is whole, and only its owner may read it. Files of which nothing
is cached are not in it, and a file with several names is in it by the one that is met first.";

const CODES: &str = "\
Exit codes: 0 all noted, 1 something could not be, 2 usage, 130 interrupted (FILE stays as it was).";

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
    let name = &args.file;
    if name.as_os_str() == "-" {
        let (saved, code) = save(args, io::stdout().lock(), Vec::new(), &stop)?;
        eprintln!("{}", saved.sums);
        return Ok(code);
    }
    let failed = |e: io::Error| Problem::of(format_args!("cannot write {}", Shown(name)), e);
    let target = target(name)?;
    let directory = target.parent().unwrap_or(Path::new("/"));
    let file = NamedTempFile::with_prefix_in(".nowait-cache-", directory).map_err(failed)?;
    let own = vec![file.path().to_path_buf(), target.clone()];
    let (saved, code) = save(args, file, own, &stop)?;
    saved.out.as_file().sync_all().map_err(failed)?;
    saved.out.persist(&target).map_err(|e| failed(e.error))?;
    // Whoever closed the pipe does not want to know.
    let _ = writeln!(io::stdout(), "{}", saved.sums);
    Ok(code)
}

/// The file to replace, by its absolute name: what a link leads to, and never a device.
fn target(file: &Path) -> Result<PathBuf, Problem> {
    let usage = |why: &str| {
        let shown = Shown(file);
        Problem::Usage(format!(
            "{shown} {why}; name a file to be replaced or made, or `-`"
        ))
    };
    let failed = |e: io::Error| Problem::of(format_args!("cannot write {}", Shown(file)), e);
    match fs::metadata(file) {
        Ok(meta) if meta.is_file() => fs::canonicalize(file).map_err(failed),
        Ok(_) => Err(usage("is not a regular file")),
        Err(_) => {
            let name = file.file_name().ok_or_else(|| usage("has no name"))?;
            let directory = std::path::absolute(file).map_err(failed)?;
            let directory = directory.parent().unwrap_or(Path::new("/"));
            Ok(fs::canonicalize(directory).map_err(failed)?.join(name))
        }
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
    let failed = |e: io::Error| Problem::of(format_args!("cannot write {}", Shown(&args.file)), e);
    let mut progress = Progress::of_files();
    let remarks = Remarks::beside(&progress);
    let mut saver = Saver {
        writer: Writer::new(BufWriter::new(out)).map_err(failed)?,
        remarks: &remarks,
        names: Names::default(),
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
    names: Names,
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
    fn take(&mut self, found: &Found, told: rustix::io::Result<Told>) -> io::Result<()> {
        let (stat, map) = match told {
            Ok(Ok(told)) => told,
            Ok(Err(why)) => {
                let why = format_args!("not noted: {why}");
                self.remarks.failure(&found.path, why);
                return Ok(());
            }
            Err(errno) => {
                found.failed(self.remarks, errno);
                return Ok(());
            }
        };
        let path = match self.names.absolute(found) {
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
fn look(found: &Found) -> rustix::io::Result<Told> {
    let file = found.open()?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Err("it is no regular file any more".into()));
    }
    Ok(match page_map(&file, 0..u64::MAX) {
        Ok(Answer::Known { value, .. }) => Ok((stat, value)),
        Ok(Answer::Unknown(reason)) => Err(reason.to_string()),
        Err(e) => Err(e.to_string()),
    })
}

/// Makes paths absolute: what a snapshot holds must mean the same wherever it is read.
#[derive(Default)]
struct Names {
    /// The last directory, and where it really is.
    directory: Option<(PathBuf, PathBuf)>,
}

impl Names {
    fn absolute(&mut self, found: &Found) -> io::Result<PathBuf> {
        let (Some(parent), Some(name)) = (found.path.parent(), found.path.file_name()) else {
            return fs::canonicalize(&found.path);
        };
        if found.named {
            return fs::canonicalize(&found.path);
        }
        if !matches!(&self.directory, Some((last, _)) if last == parent) {
            self.directory = Some((parent.to_path_buf(), fs::canonicalize(parent)?));
        }
        Ok(self
            .directory
            .as_ref()
            .map_or_else(|| found.path.clone(), |(_, real)| real.join(name)))
    }
}
