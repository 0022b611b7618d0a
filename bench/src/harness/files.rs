//! The files that are read: files of the user, or new files with data that a filesystem cannot
//! compress or deduplicate. An existing file is never written.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use serde::Serialize;
use tempfile::TempDir;

use nowait_cli::noise::Noise;
use nowait_cli::problem::Problem;
use nowait_cli::progress::Progress;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The files of one measurement.
#[derive(Debug, Serialize)]
pub struct Files {
    /// The files, at least one.
    #[serde(serialize_with = "readable")]
    pub paths: Vec<PathBuf>,
    /// The bytes of each file that are read.
    pub sizes: Vec<u64>,
    #[serde(skip)]
    _directory: Option<TempDir>,
}

/// Serializes paths. Bytes that are not UTF-8 are replaced.
fn readable<S: serde::Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

impl Files {
    /// Finds or makes the files: PATH, or PATH-0, PATH-1, … for more than one, which have these
    /// shares of the size. Contenders read files of equal shares up to the size of the smallest one,
    /// in whole blocks.
    pub fn prepare(
        (path, size): (Option<&Path>, Size),
        shares: &[u64],
        block: u64,
        stop: &Stop,
    ) -> Result<Files, Problem> {
        let all: u64 = shares.iter().sum();
        let size_of = |share: &u64| {
            let size = u128::from(size.0) * u128::from(*share) / u128::from(all.max(1));
            size as u64 / block * block
        };
        let sizes: Vec<u64> = shares.iter().map(size_of).collect();
        let (paths, directory) = match path {
            Some(path) => (numbered(path, sizes.len()), None),
            None => {
                let (paths, directory) = temporary(&sizes)?;
                (paths, Some(directory))
            }
        };
        let missing: Vec<(&Path, u64)> = paths
            .iter()
            .map(PathBuf::as_path)
            .zip(sizes.iter().copied())
            .filter(|(path, _)| !path.exists())
            .collect();
        if !missing.is_empty() {
            if sizes.contains(&0) {
                return Err(Problem::Usage(format!(
                    "--size {} is less than one block of {} in each of {} file(s): raise --size",
                    size,
                    Size(block),
                    sizes.len(),
                )));
            }
            make(&missing, stop)?;
        }
        let mut sizes = paths
            .iter()
            .map(|path| usable(path, block))
            .collect::<Result<Vec<u64>, Problem>>()?;
        if shares.iter().all(|share| *share == shares[0]) {
            let least = sizes.iter().copied().min().unwrap_or(0);
            sizes.fill(least);
        }
        Ok(Files {
            paths,
            sizes,
            _directory: directory,
        })
    }

    /// Existing files or devices, of which this many bytes each are read.
    pub fn of(paths: Vec<PathBuf>, each: u64) -> Files {
        Files {
            sizes: vec![each; paths.len()],
            paths,
            _directory: None,
        }
    }

    /// The bytes of all files together.
    pub fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// The number of blocks of this size in each file.
    pub fn blocks(&self, block: u64) -> Vec<u64> {
        self.sizes.iter().map(|size| size / block).collect()
    }

    /// Checks that no other program has removed or truncated a file.
    pub fn check(&self) -> Result<(), Problem> {
        let mut files = self.paths.iter().zip(&self.sizes);
        files.try_for_each(|(path, size)| check(path, *size))
    }

    /// Writes the data of each file to its device: only clean pages can be evicted.
    pub fn sync(&self) -> Result<(), Problem> {
        let synced = self.open()?.iter().try_for_each(rustix::fs::fdatasync);
        synced.map_err(|e| Problem::of("fdatasync", e))
    }

    /// Opens each file for reading.
    pub fn open(&self) -> Result<Vec<File>, Problem> {
        self.check()?;
        self.paths.iter().map(|path| open(path)).collect()
    }
}

/// A new directory in `parent`, by default in the current directory, on a filesystem with space for
/// so many bytes. Dropping it removes all that is in it. `remedy` tells the user what to do without
/// space.
pub fn scratch(parent: Option<&Path>, need: u64, remedy: &str) -> Result<TempDir, Problem> {
    let failed = |e: std::io::Error| {
        let parent = parent.map_or("the current directory".into(), |path| {
            path.display().to_string()
        });
        Problem::Failed(format!(
            "cannot make files in {parent}: {e}; name a file or directory that you may write to, or go to one"
        ))
    };
    let here = match parent {
        Some(parent) => parent.canonicalize(),
        None => std::env::current_dir(),
    };
    let here = here.map_err(failed)?;
    check_space(&here, need, remedy)?;
    let made = tempfile::Builder::new()
        .prefix("nowait-bench-")
        .tempdir_in(&here);
    made.map_err(|e| match is_full(&e) {
        true => no_space(&here, Some(need), remedy),
        false => failed(e),
    })
}

/// Paths in a temporary directory.
fn temporary(sizes: &[u64]) -> Result<(Vec<PathBuf>, TempDir), Problem> {
    let directory = scratch(None, sizes.iter().sum(), SMALLER)?;
    Ok((
        numbered(&directory.path().join("data"), sizes.len()),
        directory,
    ))
}

/// The path itself, or PATH-0, PATH-1, … for more than one file.
fn numbered(path: &Path, count: usize) -> Vec<PathBuf> {
    if count == 1 {
        return vec![path.to_path_buf()];
    }
    let name = |i: usize| {
        let mut name = path.as_os_str().to_os_string();
        name.push(format!("-{i}"));
        PathBuf::from(name)
    };
    (0..count).map(name).collect()
}

/// Checks that no other program has removed or truncated a file, of which so many bytes are read.
pub fn check(path: &Path, size: u64) -> Result<(), Problem> {
    let shown = path.display();
    let why = match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() < size => {
            format!(
                "another program has truncated it from {} to {}",
                Size(size),
                Size(meta.len())
            )
        }
        Ok(_) => return Ok(()),
        Err(e) => format!("another program has changed it: {e}"),
    };
    Err(Problem::Failed(format!(
        "{shown}: {why}; name a file that no other program changes"
    )))
}

/// Opens a file for reading.
pub fn open(path: &Path) -> Result<File, Problem> {
    File::open(path).map_err(|e| Problem::of(format_args!("cannot open {}", path.display()), e))
}

/// Tells the kernel not to read ahead: POSIX_FADV_RANDOM.
pub fn advise_random(file: impl AsFd) -> Result<(), Problem> {
    rustix::fs::fadvise(file, 0, None, Advice::Random).map_err(|e| Problem::of("fadvise", e))
}

/// Opens a file or block device with O_DIRECT.
pub fn open_direct(path: &Path) -> Result<File, Problem> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(path)
        .map_err(|e| {
            let shown = path.display();
            let hint = match e.raw_os_error() {
                Some(libc::EINVAL) => "; its filesystem has no O_DIRECT: name one elsewhere",
                _ => "",
            };
            Problem::Failed(format!("cannot open {shown} with O_DIRECT: {e}{hint}"))
        })
}

/// How many bytes of an existing file can be read in whole blocks.
fn usable(path: &Path, block: u64) -> Result<u64, Problem> {
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|e| Problem::of(&shown, e))?;
    if !meta.is_file() {
        return Err(Problem::Failed(format!(
            "{shown} is not a regular file; name one with --file, or a file that does not exist yet"
        )));
    }
    if meta.len() < block {
        return Err(Problem::Failed(format!(
            "{shown} has {} bytes, less than one block of {}; \
             choose a smaller --block or another --file",
            meta.len(),
            Size(block)
        )));
    }
    Ok(meta.len() - meta.len() % block)
}

/// Makes the missing files with their sizes.
pub fn make(missing: &[(&Path, u64)], stop: &Stop) -> Result<(), Problem> {
    let total = missing.iter().map(|(_, size)| size).sum();
    let mut progress = Progress::of_bytes(total);
    let mut before = 0;
    for &(path, size) in missing {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if before == 0 {
            check_space(directory, total, SMALLER)?;
        }
        make_one(path, directory, size, stop, &mut progress, before)?;
        before += size;
    }
    Ok(())
}

/// The remedy if there is no space for a file.
const SMALLER: &str = "choose a smaller --size, or a file elsewhere";

/// Checks that a filesystem has space for so many bytes. `remedy` tells the user what to do.
fn check_space(directory: &Path, need: u64, remedy: &str) -> Result<(), Problem> {
    match free(directory) {
        Ok(free) if free < need => Err(no_space(directory, Some(need), remedy)),
        Ok(_) => Ok(()),
        Err(e) => Err(Problem::of(
            format_args!("cannot make a file in {}", directory.display()),
            e,
        )),
    }
}

/// The free bytes of the filesystem of a directory, which may be one that could not be made.
fn free(directory: &Path) -> rustix::io::Result<u64> {
    let stat = statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns true if a filesystem has a limit of inodes, and none is free.
fn lacks_inodes(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|stat| stat.f_files > 0 && stat.f_favail == 0)
}

/// The filesystem of a directory, or of its closest parent that exists.
fn statvfs(directory: &Path) -> rustix::io::Result<rustix::fs::StatVfs> {
    let mut closest = directory;
    loop {
        match (rustix::fs::statvfs(closest), closest.parent()) {
            (Err(Errno::NOENT), Some(parent)) => closest = parent,
            (result, _) => return result,
        }
    }
}

/// The message of a full filesystem.
pub fn no_space(directory: &Path, need: Option<u64>, remedy: &str) -> Problem {
    let need = need.map_or(String::new(), |need| format!(" for {}", Size(need)));
    let free = match free(directory) {
        Ok(_) if lacks_inodes(directory) => " (no inode free)".into(),
        Ok(free) => format!(" ({} free)", Size(free)),
        Err(_) => String::new(),
    };
    let directory = directory.display();
    Problem::Failed(format!("no space{need} in {directory}{free}: {remedy}"))
}

/// Returns true if an error means that the filesystem is full, or the quota of the user.
pub fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// The bytes that are written between two calls of fdatasync(2) or syncfs(2).
pub const STRETCH: u64 = 64 << 20;

/// Makes a file under a temporary name and renames it when it is complete, so that an incomplete
/// file is never used.
fn make_one(
    path: &Path,
    directory: &Path,
    size: u64,
    stop: &Stop,
    progress: &mut Progress,
    before: u64,
) -> Result<(), Problem> {
    let failed = |e: std::io::Error| match is_full(&e) {
        true => no_space(directory, Some(size), SMALLER),
        false => Problem::Failed(format!(
            "cannot make {}: {e}; name a file in a directory that you may write to",
            path.display()
        )),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".nowait-bench-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(failed)?;
    // Reserves contiguous space. On a filesystem without fallocate(2), a full disk fails the
    // writes.
    let reserved = rustix::fs::fallocate(file.as_file(), FallocateFlags::empty(), 0, size);
    if reserved == Err(rustix::io::Errno::NOSPC) {
        return Err(no_space(directory, Some(size), SMALLER));
    }
    let mut noise = Noise::new(size ^ before ^ u64::from(std::process::id()));
    let mut done = 0;
    while done < size {
        if stop.asked() {
            return Err(Problem::Interrupted);
        }
        let piece = noise.bytes(size - done);
        file.write_all(piece).map_err(failed)?;
        done += piece.len() as u64;
        if done % STRETCH == 0 || done == size {
            file.as_file().sync_data().map_err(failed)?;
        }
        progress.at(before + done, format!("making {}", path.display()));
    }
    file.persist_noclobber(path).map_err(|e| failed(e.error))?;
    Ok(())
}
