//! The page cache, put into the state that a bench says it measures, before every turn.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use nowait::read::{Cached, cached_by_nowait};
use nowait::residency::{page_size, residency};
use rustix::fs::Advice;

use super::draws::{F1, Mix};
use super::files::{Files, advise_random};
use super::memory;
use super::offsets::{Offsets, Order};
use super::place::Place;
use super::turn::Turn;
use nowait_cli::problem::Problem;
use nowait_cli::scramble::picked;

/// The part of the files that is in the page cache before a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cache {
    /// Nothing.
    Cold,
    /// Everything.
    Warm,
    /// The popular blocks of f1, some of f2, and nothing else.
    Mixed { mix: Mix, block: u64 },
    /// Of the blocks that a turn will read so many percent, drawn anew for each round, and nothing
    /// else.
    Part(u32),
}

/// The number of blocks that are looked up in the page cache to check a state.
const SAMPLES: usize = 16;

/// About as much memory as a turn of a mix takes for what is read ahead, in bytes.
const READ_AHEAD: u64 = 512 << 20;

impl Cache {
    /// How the state is made, for the report.
    pub fn how(self) -> &'static str {
        match self {
            Cache::Cold => {
                "cold: fdatasync(2) once; before each turn POSIX_FADV_DONTNEED on the files, and as much \
                 memory as they need is used and freed"
            }
            Cache::Warm => "warm: the files are read through before each turn",
            Cache::Mixed { .. } => {
                "mixed: before each turn all is evicted, at most 512M of memory are used and freed, and f1's \
                 popular blocks and some of f2's are read"
            }
            Cache::Part(_) => {
                "in part: before each turn POSIX_FADV_DONTNEED, as much memory as the turn needs is used \
                 and freed, and its hits are read, without readahead"
            }
        }
    }

    /// Prepares the files, once before the first turn. Returns a note if the state cannot be made.
    pub fn begin(self, files: &Files) -> Result<Option<String>, Problem> {
        match self {
            Cache::Cold | Cache::Mixed { .. } | Cache::Part(_) => {
                files.sync()?;
                let handle = nowait::Handle::new(files.open()?.swap_remove(0))?;
                Ok(handle.filesystem().is_memory().then(|| {
                    "the file lies in memory: it is never cold; name a --file on a disk".into()
                }))
            }
            Cache::Warm => {
                let total = files.total();
                match nowait_cli::proc::available_memory() {
                    Some(memory) if total > memory / 2 => Err(Problem::Failed(format!(
                        "{} to read, {} of memory free: they would not stay in the page cache; \
                         choose a smaller --size or --file",
                        nowait_cli::size::Size(total),
                        nowait_cli::size::Size(memory),
                    ))),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Makes the state before a turn. Returns a note if the page cache is not in it.
    pub fn prepare(self, turn: &Turn<'_>) -> Result<Option<String>, Problem> {
        let open = turn.files.open()?;
        let complaint = match self {
            Cache::Cold => prepare_cold(turn, &open),
            Cache::Warm => prepare_warm(turn, &open),
            Cache::Mixed { mix, block } => prepare_mixed(turn, &open, mix, block),
            Cache::Part(percent) => prepare_part(turn, &open, percent),
        };
        Ok(complaint?.map(str::to_owned))
    }
}

/// The note of a report if the page cache is not in the state that was asked for.
type Complaint = Option<&'static str>;

fn prepare_cold(turn: &Turn<'_>, open: &[File]) -> Result<Complaint, Problem> {
    evict(open)?;
    let stayed = resident(open);
    let total = turn.files.total();
    memory::touch(total);
    Ok(stayed.filter(|&bytes| bytes > total / 100).map(|_| {
        "not cold: more than 1 % of a file stayed in the page cache after POSIX_FADV_DONTNEED (another \
         program maps or holds the file, or its filesystem ignores the advice)"
    }))
}

fn prepare_warm(turn: &Turn<'_>, open: &[File]) -> Result<Complaint, Problem> {
    for (file, size) in open.iter().zip(&turn.files.sizes) {
        read_through(file, *size)?;
    }
    let there = sample(turn.files, open, turn.seed)?;
    Ok(there.filter(|&n| n < SAMPLES).map(|_| {
        "not warm: some blocks had left the page cache again before a turn: choose a smaller --size"
    }))
}

fn prepare_mixed(
    turn: &Turn<'_>,
    open: &[File],
    mix: Mix,
    block: u64,
) -> Result<Complaint, Problem> {
    evict(open)?;
    memory::touch(turn.files.total().min(READ_AHEAD));
    let warm = mix.warm(&turn.files.blocks(block), turn.seed);
    for (file, blocks) in open.iter().zip(&warm) {
        warm_blocks(file, blocks, block)?;
    }
    let least_popular = warm[F1].iter().rev().take(SAMPLES);
    let places = least_popular.map(|at| Place {
        offset: at * block,
        ..Place::default()
    });
    let there = count(open, places, block)?;
    Ok(there.filter(|&n| n < SAMPLES.min(warm[F1].len())).map(|_| {
        "not warm: some of f1's popular blocks had left the page cache again before a turn: choose a \
         smaller --size"
    }))
}

fn prepare_part(turn: &Turn<'_>, open: &[File], percent: u32) -> Result<Complaint, Problem> {
    evict(open)?;
    memory::touch(turn.reads() * turn.block);
    let hits = turn.reads() * u64::from(percent) / 100;
    let places = turn.places().zip(0..);
    let places = places.filter(|&(_, i)| picked(i, turn.reads(), hits, turn.seed));
    let blocks: Vec<u64> = places.map(|(place, _)| place.offset / turn.block).collect();
    warm_blocks(&open[0], &blocks, turn.block)?;
    let there = resident(open);
    let off = there.map(|there| there.abs_diff(hits * turn.block));
    let most = (turn.reads() * turn.block / 100).max(2 * turn.block);
    Ok(off.filter(|&off| off > most).map(|_| {
        "the page cache did not have what it was to have before a turn, by more than 1 % of the reads \
         (is the file used by others, or memory short?)"
    }))
}

/// Evicts these files, and repeats that while pages are left: the kernel may still read ahead for an
/// earlier turn.
pub fn evict(files: &[File]) -> Result<(), Problem> {
    for _ in 0..20 {
        drop_pages(files)?;
        if resident(files).is_none_or(|there| there == 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The number of cached bytes of the files, in whole pages; `None` if the kernel does not report it.
pub fn resident(files: &[File]) -> Option<u64> {
    let pages = |file| Some(residency(file, 0..u64::MAX).ok()?.known()?.cached);
    let pages: Option<u64> = files.iter().map(pages).sum();
    Some(pages? * page_size())
}

/// Reads the first `size` bytes of a file, unless all of them are cached.
pub fn warm(file: &File, size: u64) -> Result<(), Problem> {
    let cached = residency(file, 0..size)?.known();
    match cached.is_some_and(|known| known.cached * page_size() >= size) {
        true => Ok(()),
        false => read_through(file, size),
    }
}

/// Reads a file, so that the page cache has it.
pub fn read_through(file: &File, size: u64) -> Result<(), Problem> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        match file.read_at(&mut buffer, at) {
            Ok(0) => break,
            Ok(n) => at += n as u64,
            Err(e) => return Err(Problem::of("read", e)),
        }
    }
    Ok(())
}

fn drop_pages(files: &[File]) -> Result<(), Problem> {
    for file in files {
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
            .map_err(|e| Problem::of("fadvise DONTNEED", e))?;
    }
    Ok(())
}

/// Makes the kernel drop all clean caches. `instead` tells the user what works without it.
fn drop_caches(instead: &str) -> Result<(), Problem> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| {
        Problem::Failed(format!(
            "cannot write /proc/sys/vm/drop_caches: {e}; run it as root, or {instead}"
        ))
    })
}

/// The text on [`forget`] in a report.
pub const FORGET: &str = "cold: before each turn syncfs(2), 3 into /proc/sys/vm/drop_caches, and as much memory \
                          as the files and inodes need is used and freed";

/// Bytes of memory that the kernel takes at most for a file: its inode, its name, their blocks.
const MEMORY_A_FILE: u64 = 4 << 10;

/// Makes the kernel forget a tree of this many files and bytes: their data, inodes and names.
/// `instead` tells the user what works without root.
pub fn forget(tree: &Path, files: u64, bytes: u64, instead: &str) -> Result<(), Problem> {
    sync(tree)?;
    drop_caches(instead)?;
    memory::touch(bytes + files * MEMORY_A_FILE);
    Ok(())
}

/// Writes the changes of one filesystem to its device.
pub fn sync(path: &Path) -> Result<(), Problem> {
    File::open(path)
        .and_then(|file| Ok(rustix::fs::syncfs(file)?))
        .map_err(|e| Problem::of(format_args!("cannot sync {}", path.display()), e))
}

/// Reads these blocks into the page cache, and no others.
pub fn warm_blocks(file: &File, blocks: &[u64], block: u64) -> Result<(), Problem> {
    advise_random(file)?;
    let mut blocks = blocks.to_vec();
    blocks.sort_unstable();
    // The device gets many requests at a time. Neighbouring blocks are one request, which is not
    // larger than the kernel's readahead on an ordinary device.
    let most = usize::try_from((128 << 10) / block).unwrap_or(1).max(1);
    let runs = blocks.chunk_by(|one, next| one + 1 == *next);
    for run in runs.flat_map(|run| run.chunks(most)) {
        let len = std::num::NonZeroU64::new(run.len() as u64 * block);
        rustix::fs::fadvise(file, run[0] * block, len, Advice::WillNeed)
            .map_err(|e| Problem::of("fadvise WILLNEED", e))?;
    }
    let mut buffer = vec![0; block as usize];
    for at in blocks {
        file.read_exact_at(&mut buffer, at * block)
            .map_err(|e| {
                match e.kind() {
                std::io::ErrorKind::UnexpectedEof => Problem::Failed(
                    "another program has truncated the file; name one that no other program changes"
                        .into(),
                ),
                _ => Problem::of("read", e),
            }
            })?;
    }
    Ok(())
}

/// The number of these places that are cached; `None` if the kernel does not report it.
fn count(
    open: &[File],
    places: impl Iterator<Item = Place>,
    len: u64,
) -> Result<Option<usize>, Problem> {
    let mut buffer = vec![0; len as usize];
    let mut there = 0;
    for place in places {
        match cached_by_nowait(&open[place.file], &mut buffer, place.offset)? {
            Cached::All(_) => there += 1,
            Cached::Prefix(_) | Cached::Nothing => {}
            Cached::Unsupported(_) => return Ok(None),
        }
    }
    Ok(Some(there))
}

/// The number of cached pages among a few random ones; `None` if the kernel does not report it.
fn sample(files: &Files, open: &[File], seed: u64) -> Result<Option<usize>, Problem> {
    let least = files.sizes.iter().copied().min().unwrap_or(0);
    let size = least.min(4096);
    let blocks = vec![least / size; open.len()];
    let mut offsets = Offsets::new(Order::Any, (&blocks, size), !seed, (0, 1));
    for file in open {
        // Without readahead, the look-up of a missing page reads that page alone.
        advise_random(file)?;
    }
    let places = std::iter::from_fn(|| offsets.place()).take(SAMPLES);
    count(open, places, size)
}
