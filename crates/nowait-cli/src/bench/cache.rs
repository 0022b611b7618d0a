//! The page cache, put into the state that a bench says it measures, before every turn.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nowait::read::{Cached, cached};
use rustix::fs::Advice;

use super::files::Files;
use super::offsets::{Offsets, Order};
use super::problem::Problem;

/// What the page cache is to have of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nothing.
    Cold {
        /// Nor of anything else.
        drop_all: bool,
    },
    /// Everything.
    Warm,
}

/// How many blocks are looked at to see whether it worked.
const SAMPLES: usize = 16;

impl Cache {
    /// How it is done, for the report.
    pub fn how(self) -> &'static str {
        match self {
            Cache::Cold { drop_all: false } => {
                "cold: fdatasync(2) once, POSIX_FADV_DONTNEED on the files before each turn"
            }
            Cache::Cold { drop_all: true } => {
                "cold: fdatasync(2) once, POSIX_FADV_DONTNEED on the files and 3 into \
                 /proc/sys/vm/drop_caches before each turn"
            }
            Cache::Warm => "warm: the files are read through before each turn",
        }
    }

    /// Once, before the first turn. Says what can't be.
    pub fn begin(self, files: &Files) -> Result<Option<String>, Problem> {
        match self {
            Cache::Cold { .. } => {
                for file in files.open()? {
                    rustix::fs::fdatasync(&file).map_err(|e| Problem::of("fdatasync", e))?;
                }
                let handle = nowait::Handle::new(files.open()?.swap_remove(0))?;
                Ok(handle.filesystem().is_memory().then(|| {
                    "the file lies in memory: it is never cold; name a --file on a disk".into()
                }))
            }
            Cache::Warm => {
                let total = files.total();
                match available_memory() {
                    Some(memory) if total > memory / 2 => Err(Problem::Failed(format!(
                        "{} to read, {} of memory free: they would not stay in the page cache; \
                         choose a smaller --size or --file",
                        super::size::Size(total),
                        super::size::Size(memory),
                    ))),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Before a turn. Says if it did not come true.
    pub fn prepare(self, files: &Files, seed: u64) -> Result<Option<String>, Problem> {
        let open = files.open()?;
        match self {
            Cache::Cold { drop_all } => {
                drop_pages(&open)?;
                if drop_all {
                    std::fs::write("/proc/sys/vm/drop_caches", "3")
                        .map_err(|e| Problem::of("cannot write /proc/sys/vm/drop_caches", e))?;
                }
                let there = sample(files, &open, seed)?;
                // The look itself may have begun to read.
                drop_pages(&open)?;
                // A fast device can bring a page while it is asked for, so a few are no news.
                Ok(there.filter(|&n| n > SAMPLES / 2).map(|_| {
                    "not cold: most of the blocks looked at stayed in the page cache after \
                     POSIX_FADV_DONTNEED (another program maps or holds the file, or its \
                     filesystem ignores the advice)"
                        .into()
                }))
            }
            Cache::Warm => {
                let mut buffer = vec![0; 1 << 20];
                for file in &open {
                    let mut at = 0;
                    while at < files.each {
                        match file.read_at(&mut buffer, at) {
                            Ok(0) => break,
                            Ok(n) => at += n as u64,
                            Err(e) => return Err(Problem::of("read", e)),
                        }
                    }
                }
                let there = sample(files, &open, seed)?;
                Ok(there.filter(|&n| n < SAMPLES).map(|_| {
                    "not warm: some blocks had left the page cache again before a turn: \
                     choose a smaller --size"
                        .into()
                }))
            }
        }
    }
}

fn drop_pages(files: &[File]) -> Result<(), Problem> {
    for file in files {
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed)
            .map_err(|e| Problem::of("fadvise DONTNEED", e))?;
    }
    Ok(())
}

/// How many of a few random pages are in the page cache; `None` where nobody can say.
fn sample(files: &Files, open: &[File], seed: u64) -> Result<Option<usize>, Problem> {
    let size = files.each.min(4096);
    let shape = (open.len(), files.each / size, size);
    let mut offsets = Offsets::new(Order::Any, shape, !seed, (0, 1));
    let mut buffer = vec![0; size as usize];
    let mut there = 0;
    for file in open {
        // So that a look at what is not there brings one page and no more.
        rustix::fs::fadvise(file, 0, None, Advice::Random)
            .map_err(|e| Problem::of("fadvise", e))?;
    }
    for _ in 0..SAMPLES {
        let place = offsets.place();
        match cached(&open[place.file], &mut buffer, place.offset)? {
            Cached::All(_) => there += 1,
            Cached::Prefix(_) | Cached::Nothing => {}
            Cached::Unsupported(_) => return Ok(None),
        }
    }
    Ok(Some(there))
}

/// What the kernel thinks it could give without swapping.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}
