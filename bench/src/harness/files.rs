//! The files that are read: the user's own, or made and filled with data that no filesystem can
//! compress, deduplicate or leave out. An existing file is only ever read.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use serde::Serialize;
use tempfile::TempDir;

use super::offsets::mix;
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
    /// How many bytes of each are read from.
    pub sizes: Vec<u64>,
    /// Which of the paths this program has made: `none`, `kept` or `temporary`.
    pub made: Made,
    #[serde(skip)]
    _directory: Option<TempDir>,
}

/// Names that are no UTF-8 are shown as well as can be.
fn readable<S: serde::Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// The origin of the files, and their removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Made {
    /// All were there.
    None,
    /// The user named them: they stay.
    Kept,
    /// They go at the end.
    Temporary,
}

/// The files that a measurement needs.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The name that the user gave.
    pub path: Option<&'a Path>,
    /// Of all files together.
    pub size: Size,
    /// How it is shared out to them. Files of equal shares are read alike: as far as the smallest
    /// of them goes.
    pub shares: &'a [u64],
    /// The largest block that will be read.
    pub block: u64,
}

impl Wanted<'_> {
    /// The bytes of each file, in whole blocks.
    fn sizes(&self) -> Vec<u64> {
        let all: u64 = self.shares.iter().sum();
        self.shares
            .iter()
            .map(|share| {
                let size = u128::from(self.size.0) * u128::from(*share) / u128::from(all.max(1));
                size as u64 / self.block * self.block
            })
            .collect()
    }
}

impl Files {
    /// Finds or makes them.
    pub fn prepare(wanted: Wanted<'_>, stop: &Stop) -> Result<Files, Problem> {
        let sizes = wanted.sizes();
        let (paths, directory) = match wanted.path {
            Some(path) => (numbered(path, sizes.len()), None),
            None => {
                let (paths, directory) = temporary(&sizes)?;
                (paths, Some(directory))
            }
        };
        let missing: Vec<(&PathBuf, u64)> = paths
            .iter()
            .zip(sizes.iter().copied())
            .filter(|(path, _)| !path.exists())
            .collect();
        if !missing.is_empty() {
            if sizes.contains(&0) {
                return Err(Problem::Usage(format!(
                    "--size {} is less than one block of {} in each of {} file(s): raise --size",
                    wanted.size,
                    Size(wanted.block),
                    sizes.len(),
                )));
            }
            make(&missing, stop)?;
        }
        let made = match (&directory, missing.is_empty()) {
            (Some(_), _) => Made::Temporary,
            (None, false) => Made::Kept,
            (None, true) => Made::None,
        };
        let mut sizes = paths
            .iter()
            .map(|path| usable(path, wanted.block))
            .collect::<Result<Vec<u64>, Problem>>()?;
        if wanted.shares.iter().all(|share| *share == wanted.shares[0]) {
            let least = sizes.iter().copied().min().unwrap_or(0);
            sizes.fill(least);
        }
        Ok(Files {
            paths,
            sizes,
            made,
            _directory: directory,
        })
    }

    /// Such as are there, with so many bytes each; devices too.
    pub fn of(paths: Vec<PathBuf>, each: u64) -> Files {
        Files {
            sizes: vec![each; paths.len()],
            paths,
            made: Made::None,
            _directory: None,
        }
    }

    /// The bytes of all together.
    pub fn total(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// How many blocks of so many bytes each of them has.
    pub fn blocks(&self, block: u64) -> Vec<u64> {
        self.sizes.iter().map(|size| size / block).collect()
    }

    /// Opens each of them for reading.
    pub fn open(&self) -> Result<Vec<File>, Problem> {
        self.paths.iter().map(|path| open(path)).collect()
    }
}

/// Names in a directory that goes when the bench is over.
fn temporary(sizes: &[u64]) -> Result<(Vec<PathBuf>, TempDir), Problem> {
    let failed = |e: std::io::Error| {
        Problem::Failed(format!(
            "cannot make files in the current directory: {e}; \
             go to a directory that you may write to, or name a --file"
        ))
    };
    let here = std::env::current_dir().map_err(failed)?;
    check_space(&here, sizes.iter().sum())?;
    let directory = tempfile::Builder::new()
        .prefix("nowait-bench-")
        .tempdir_in(here)
        .map_err(failed)?;
    Ok((
        numbered(&directory.path().join("data"), sizes.len()),
        directory,
    ))
}

/// One path as it is, several with a number behind.
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

/// Opens one for reading.
pub fn open(path: &Path) -> Result<File, Problem> {
    File::open(path).map_err(|e| Problem::of(format_args!("cannot open {}", path.display()), e))
}

/// How many bytes of an existing file can be read in whole blocks.
fn usable(path: &Path, block: u64) -> Result<u64, Problem> {
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|e| Problem::of(&shown, e))?;
    if !meta.is_file() {
        return Err(Problem::Failed(format!(
            "{shown} is not a regular file; name one with --file, or a name that is not there yet"
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

/// Makes the missing files, each of so many bytes.
fn make(missing: &[(&PathBuf, u64)], stop: &Stop) -> Result<(), Problem> {
    let total = missing.iter().map(|(_, size)| size).sum();
    let mut progress = Progress::of_bytes(total);
    let mut before = 0;
    for &(path, size) in missing {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if before == 0 {
            check_space(directory, total)?;
        }
        make_one(path, directory, size, stop, &mut progress, before)?;
        before += size;
    }
    Ok(())
}

fn check_space(directory: &Path, need: u64) -> Result<(), Problem> {
    let shown = directory.display();
    let stat = rustix::fs::statvfs(directory)
        .map_err(|e| Problem::of(format_args!("cannot make a file in {shown}"), e))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < need {
        return Err(no_space(directory, need, free));
    }
    Ok(())
}

fn no_space(directory: &Path, need: u64, free: u64) -> Problem {
    Problem::Failed(format!(
        "no space for {} in {} ({} free): choose a smaller --size, or a --file elsewhere",
        Size(need),
        directory.display(),
        Size(free),
    ))
}

/// How much is written before it is brought to the device.
const STRETCH: u64 = 64 << 20;

/// Fills a file under another name, and gives it its own when it is whole: half a file never
/// passes for one.
fn make_one(
    path: &Path,
    directory: &Path,
    size: u64,
    stop: &Stop,
    progress: &mut Progress,
    before: u64,
) -> Result<(), Problem> {
    let failed = |e: std::io::Error| Problem::of(format_args!("cannot make {}", path.display()), e);
    let mut file = tempfile::Builder::new()
        .prefix(".nowait-bench-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(directory)
        .map_err(failed)?;
    // In one piece, if the filesystem can. If it has no such call, writing says the truth.
    let reserved = rustix::fs::fallocate(file.as_file(), FallocateFlags::empty(), 0, size);
    if reserved == Err(rustix::io::Errno::NOSPC) {
        return Err(no_space(directory, size, 0));
    }
    let mut block = vec![0u8; 1 << 20];
    let mut state = mix(size ^ before ^ u64::from(std::process::id()));
    let mut done = 0;
    while done < size {
        if stop.asked() {
            return Err(Problem::Interrupted);
        }
        fill(&mut block, &mut state);
        let n = (size - done).min(block.len() as u64);
        file.write_all(&block[..n as usize]).map_err(failed)?;
        done += n;
        if done % STRETCH == 0 || done == size {
            file.as_file().sync_data().map_err(failed)?;
        }
        progress.at(before + done, format!("making {}", path.display()));
    }
    file.persist_noclobber(path).map_err(|e| failed(e.error))?;
    Ok(())
}

/// Pseudo-random bytes (xorshift64).
fn fill(block: &mut [u8], state: &mut u64) {
    *state |= 1;
    for word in block.chunks_exact_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}
