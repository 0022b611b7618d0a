//! `nowait cache save` writes a snapshot of which ranges of files are cached.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use nowait::residency::{Answer, PageMap, page_map};
use nowait_page_cache::{FileRef, LOOK, OpenError, SeenInodes, Stamp};
use rustix::fs::{FileType, Stat};
use tempfile::NamedTempFile;

use super::snapshot::{self, FORMAT, Snapshot};
use crate::file_list::{MAX_RANGES, Uses, Writer, Written};
use crate::messages::{Messages, say};
use crate::name::{DisplayPath, plural};
use crate::paths::{Kinds, Paths};
use crate::problem::Problem;
use crate::progress::Progress;
use crate::size::Size;
use crate::stop::Stop;

/// Saves which ranges of files are in the page cache.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{DETAILS}\n\n{}\n\n{EXIT_STATUS}", snapshot::JSON_FORMAT))]
pub struct Args {
    /// The snapshot to write. `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Replace FILE if it is a complete snapshot
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    paths: Paths,
}

const DETAILS: &str = "\
FILE is created when the snapshot is complete. FILE and its directory are synced (fsync(2)) before the
command ends. An existing FILE is not replaced, except with --force, which replaces only a complete
snapshot. Files without cached pages are not listed. A file with several names is listed under the
first one found. A file under a lease for writing is looked at as by nowait-fincore(1).";

const EXIT_STATUS: &str = "\
Examples:
  nowait cache save -o before /srv          before a reboot
  nowait cache save --force -o before /srv  replaces the snapshot

Exit status:
  0    success
  1    some files failed; each failure is reported on standard error
  2    wrong usage, or FILE must not be replaced
  130  interrupted; FILE is as before, or the complete snapshot";

/// The reason why the visit ended early.
enum Ended {
    Stopped,
    Failed(io::Error),
}

/// The metadata and cached ranges of one file, or the reason why they are unknown.
type SavedRanges = Result<(Stat, PageMap), String>;

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::on_signals()?;
    let name = &args.output;
    if name.as_os_str() == "-" {
        let (saved, code) = save(args, io::stdout().lock(), Vec::new(), &stop)?;
        say(&saved.sums);
        return Ok(code);
    }
    let failed = |e: io::Error| Problem::of(format_args!("cannot write {}", DisplayPath(name)), e);
    let target = Target::new(name, args.force)?;
    // The mode of an ordinary new file, which the umask restricts.
    let file = tempfile::Builder::new()
        .prefix(".nowait-cache-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(target.directory())
        .map_err(failed)?;
    let own = vec![file.path().to_path_buf(), target.path.clone()];
    let (saved, code) = save(args, file, own, &stop)?;
    sync(saved.out.as_file(), &stop)?.map_err(failed)?;
    let directory = File::open(target.directory()).map_err(failed)?;
    target.put(saved.out)?;
    directory.sync_all().map_err(failed)?;
    match writeln!(io::stdout(), "{}", saved.sums).map_err(Problem::from) {
        Ok(()) | Err(Problem::Closed) => Ok(code),
        Err(problem) => Err(problem),
    }
}

/// Syncs a file in a thread, so that this one goes on after a stop request, and removes the file.
fn sync(file: &File, stop: &Stop) -> Result<io::Result<()>, Problem> {
    let (to, synced) = mpsc::sync_channel(1);
    let started = file.try_clone().and_then(|file| {
        let sync = move || drop(to.send(file.sync_all()));
        thread::Builder::new().spawn(sync)
    });
    if started.is_err() {
        return Ok(file.sync_all());
    }
    while !stop.asked() {
        if let Ok(result) = synced.recv_timeout(LOOK) {
            return Ok(result);
        }
    }
    Err(Problem::Interrupted)
}

/// The file to which the snapshot is written.
struct Target<'a> {
    /// The path as given.
    name: &'a Path,
    /// The path with its directory resolved at the start.
    path: PathBuf,
    force: bool,
}

impl<'a> Target<'a> {
    /// Checks that the file does not exist, or with `force` is a snapshot.
    fn new(name: &'a Path, force: bool) -> Result<Target<'a>, Problem> {
        let failed =
            |e: io::Error| Problem::of(format_args!("cannot write {}", DisplayPath(name)), e);
        // `Path::file_name` ignores a slash or `/.` at the end, with which open(2) makes no file.
        let last = name.as_os_str().as_bytes().rsplit(|&byte| byte == b'/');
        let last = last.map(OsStr::from_bytes).next().unwrap_or_default();
        if last.is_empty() || last == "." || last == ".." {
            return Err(Problem::Usage(format!(
                "{} is not a file name",
                DisplayPath(name)
            )));
        }
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

    /// Fails if the path has a file that must not be replaced.
    fn check(&self) -> Result<(), Problem> {
        let failed = |e| Problem::of(format_args!("cannot write {}", DisplayPath(self.name)), e);
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
        let snapshot = match FileRef::given(self.path.clone(), 0, FileType::RegularFile).open() {
            Ok((file, _)) => Snapshot::check(file, "its".into()),
            Err(why) => return Err(self.refused(&format!("cannot be read: {why}"), beside)),
        };
        match snapshot {
            Ok(_) => Ok(()),
            Err(Problem::Failed(why)) => {
                Err(self.refused(&format!("is not a complete snapshot ({why})"), beside))
            }
            Err(problem) => Err(problem),
        }
    }

    /// Renames the snapshot to its path. A file that was created there meanwhile is replaced under
    /// the same conditions.
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
                let what = format_args!("cannot write {}", DisplayPath(self.name)).to_string();
                Err(Problem::of(what, e.error))
            }
        }
    }

    fn exists(&self) -> Problem {
        self.refused(
            "exists",
            "name another file, or use --force to replace a snapshot",
        )
    }

    fn refused(&self, why: &str, instead: &str) -> Problem {
        Problem::Usage(format!("{} {why}; {instead}", DisplayPath(self.name)))
    }
}

/// A complete snapshot.
struct Saved<W> {
    out: W,
    sums: String,
}

/// Writes the snapshot. The files in `own`, to which it is written, are not listed.
fn save<W: Write>(
    args: &Args,
    out: W,
    own: Vec<PathBuf>,
    stop: &Stop,
) -> Result<(Saved<W>, ExitCode), Problem> {
    let failed = |e: io::Error| {
        Problem::of(
            format_args!("cannot write {}", DisplayPath(&args.output)),
            e,
        )
    };
    let mut progress = Progress::of_files();
    let messages = Messages::beside(&progress);
    let mut saver = Saver {
        writer: Writer::new(BufWriter::new(out), &FORMAT, &serde_json::json!({}))
            .map_err(failed)?,
        messages: &messages,
        seen: SeenInodes::new(args.paths.may_overlap()),
        own,
        files: 0,
        listed: 0,
        bytes: 0,
        other_names: 0,
    };
    let visited = args
        .paths
        .examine(Kinds::Regular, &messages, stop, query, |found, ranges| {
            if stop.asked() {
                return Err(Ended::Stopped);
            }
            saver.take(&found, ranges).map_err(Ended::Failed)?;
            progress.at(saver.files, format!("{} cached", Size(saver.bytes)));
            Ok(())
        });
    match visited {
        Err(Ended::Stopped) => return Err(Problem::Interrupted),
        Err(Ended::Failed(e)) => return Err(failed(e)),
        // The visit also ends early while no result is left to be taken.
        Ok(()) if stop.asked() => return Err(Problem::Interrupted),
        Ok(()) => {}
    }
    let (bytes, listed, files) = (Size(saver.bytes), saver.listed, saver.files);
    let out = saver.writer.end().map_err(failed)?;
    let mut sums = format!("saved {bytes} in {listed} of {files} files");
    if saver.other_names > 0 {
        sums += &format!(" ({})", plural(saver.other_names, "more name"));
    }
    let saved = Saved {
        out: out.into_inner().map_err(|e| failed(e.into_error()))?,
        sums,
    };
    Ok((saved, messages.exit_code()))
}

/// Writes the entries, file by file.
struct Saver<'a, W: Write> {
    writer: Writer<BufWriter<W>>,
    messages: &'a Messages,
    seen: SeenInodes,
    /// The files to which the snapshot is written.
    own: Vec<PathBuf>,
    files: u64,
    listed: u64,
    bytes: u64,
    /// The number of further names of processed files.
    other_names: u64,
}

impl<W: Write> Saver<'_, W> {
    /// Writes the entries of one file.
    ///
    /// # Errors
    /// If the snapshot cannot be written. A failure of the file itself is reported on standard
    /// error.
    fn take(&mut self, found: &FileRef, ranges: Result<SavedRanges, OpenError>) -> io::Result<()> {
        let (stat, map) = match ranges {
            Ok(Ok(ranges)) => ranges,
            Ok(Err(why)) => {
                let why = format_args!("not saved: {why}");
                self.messages.failure(&found.path(), why);
                return Ok(());
            }
            Err(why) => {
                found.failed(self.messages, why);
                return Ok(());
            }
        };
        let path = match found.absolute() {
            Ok(path) => path,
            Err(e) => {
                self.messages.failure(&found.path(), e);
                return Ok(());
            }
        };
        if self.own.contains(&path) {
            return Ok(());
        }
        if !self.seen.insert(&stat) {
            self.other_names += 1;
            return Ok(());
        }
        self.files += 1;
        self.listed += u64::from(map.cached() > 0);
        let stamp = Stamp::of(&stat);
        let mut resident = map.resident().map(|range| (range.start, range.end));
        loop {
            let ranges: Vec<(u64, u64)> = resident.by_ref().take(MAX_RANGES).collect();
            if ranges.is_empty() {
                return Ok(());
            }
            self.bytes += ranges.iter().map(|(from, to)| to - from).sum::<u64>();
            let file = Some((&stamp, &ranges[..]));
            self.writer
                .line(&Written::new(&path, file, Uses::default()))?;
        }
    }
}

/// Queries the cached ranges of a file.
fn query(file: File, stat: Stat) -> Result<SavedRanges, OpenError> {
    Ok(match page_map(&file, 0..u64::MAX) {
        Ok(Answer::Known { value, .. }) => Ok((stat, value)),
        Ok(Answer::Unknown(reason)) => Err(reason.to_string()),
        Err(e) => Err(e.to_string()),
    })
}
