//! The file that is read: a temporary one without a name, or one that the user names.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nowait::Handle;
use nowait::engine::Engine;
use nowait::residency::{page_size, residency};
use rustix::fs::{Advice, StatVfs};
use rustix::process::{Resource, getrlimit};

use super::way::{BLOCK, Way};
use crate::name::shown;
use crate::noise::Noise;
use crate::problem::Problem;
use crate::proc::available_memory;
use crate::progress::Progress;
use crate::size::Size;
use crate::stop::Stop;

/// The smallest size of the file in bytes: below it, a turn has too few cold reads.
const SMALLEST: u64 = 1 << 20;
/// The bytes that cached reads use at most, so that they stay cached.
const CACHED: u64 = 64 << 20;
/// The bytes that are written to the disk, or read, between two looks at Ctrl-C.
const CHUNK: usize = 8 << 20;
/// The memory that is used and freed before a turn of cold reads, about as much as the turn needs.
const TOUCHED: u64 = 64 << 20;
/// The number of times that pages are evicted. Pages under I/O stay the first time.
const EVICTIONS: u32 = 20;

/// Parses the option `--size`.
pub fn size(text: &str) -> Result<Size, String> {
    match text.parse()? {
        Size(bytes) if bytes < SMALLEST => Err(format!(
            "{text} is too small for a measurement: name at least {}",
            Size(SMALLEST)
        )),
        size => Ok(size),
    }
}

/// The file that is read.
pub struct DemoFile {
    file: Arc<File>,
    handle: Handle,
    /// The bytes from the start of the file that are read: whole blocks.
    pub bytes: u64,
    /// True if the file was made for the measurement.
    pub temporary: bool,
}

impl DemoFile {
    /// Makes a file in the directory `path`, or opens the file `path`.
    pub fn find(path: &Path, size: Size, stop: &Stop) -> Result<DemoFile, Problem> {
        let failed = |e| Problem::of(shown(&path), e);
        let meta = path.metadata().map_err(failed)?;
        let temporary = meta.is_dir();
        let file = if temporary {
            temporary_file(path, size, stop)?
        } else if meta.is_file() {
            File::open(path).map_err(failed)?
        } else {
            let message = "neither a file nor a directory; name one of those";
            return Err(Problem::of(shown(&path), message));
        };
        let len = file.metadata().map_err(failed)?.len().min(size.0);
        if len < SMALLEST {
            let message = format!(
                "the file has {len} bytes; name one of at least {}, or a directory",
                Size(SMALLEST)
            );
            return Err(Problem::of(shown(&path), message));
        }
        // Reads at random places gain nothing from readahead.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(DemoFile {
            handle: Handle::new(file.try_clone().map_err(failed)?)?,
            file: Arc::new(file),
            bytes: len / BLOCK * BLOCK,
            temporary,
        })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The file as one of nowait, on this engine.
    pub fn open(&self, engine: &Engine) -> Result<nowait::File, Problem> {
        let fd = self.file.try_clone().map_err(|e| Problem::of("dup", e))?;
        Ok(nowait::File::from_fd(fd, engine)?)
    }

    /// The kind of the filesystem.
    pub fn filesystem(&self) -> Option<&'static str> {
        self.handle.filesystem().name()
    }

    /// The number of blocks that are read.
    pub fn blocks(&self, way: Way) -> u64 {
        match way {
            Way::Cached => self.cached() / BLOCK,
            Way::Cold => self.bytes / BLOCK,
        }
    }

    /// The bytes that cached reads use.
    fn cached(&self) -> u64 {
        let memory = available_memory().unwrap_or(u64::MAX);
        self.bytes.min(CACHED).min((memory / 4).max(SMALLEST))
    }

    /// The reason why no read of the file comes from a disk, if there is one.
    pub fn why_not_cold(&self) -> Option<String> {
        if self.handle.filesystem().is_memory() {
            return Some(format!(
                "the filesystem ({}) keeps its files in memory",
                self.filesystem().unwrap_or("unknown")
            ));
        }
        let allocated = self.file.metadata().map_or(u64::MAX, |meta| meta.blocks());
        if allocated.saturating_mul(512) < self.bytes / 2 {
            return Some("most of the file is a hole, which is not read from a disk".into());
        }
        self.evict();
        let stayed = self.resident().unwrap_or(0);
        (stayed > self.bytes / 100).then(|| {
            let percent = 100 * stayed / self.bytes;
            format!("{percent} % of the file stays in the page cache after POSIX_FADV_DONTNEED")
        })
    }

    /// Puts the page cache into the state that a turn needs.
    pub fn prepare(&self, way: Way, stop: &Stop) -> Result<(), Problem> {
        match way {
            Way::Cached => self.warm(stop),
            Way::Cold => {
                self.evict();
                // A hypervisor takes back memory that is free for a while. Each turn finds memory
                // that was just used.
                let memory = available_memory().unwrap_or(0) / 4;
                let bytes = usize::try_from(TOUCHED.min(memory)).unwrap_or(0);
                drop(std::hint::black_box(vec![1_u8; bytes]));
                Ok(())
            }
        }
    }

    /// Reads the part that is to be cached.
    fn warm(&self, stop: &Stop) -> Result<(), Problem> {
        let mut buffer = vec![0; CHUNK];
        let mut offset = 0;
        while offset < self.cached() && !stop.asked() {
            let read = self.file.read_at(&mut buffer, offset);
            match read.map_err(|e| Problem::of("read", e))? {
                0 => break,
                read => offset += read as u64,
            }
        }
        Ok(())
    }

    /// Evicts the pages, as far as the filesystem allows.
    fn evict(&self) {
        for _ in 0..EVICTIONS {
            let _ = rustix::fs::fadvise(&*self.file, 0, None, Advice::DontNeed);
            if self.resident().is_none_or(|bytes| bytes == 0) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The number of bytes that are cached. `None` if the kernel does not report it.
    fn resident(&self) -> Option<u64> {
        let asked = residency(&*self.file, 0..self.bytes).ok()?;
        Some(asked.known()?.cached * page_size())
    }
}

/// A file without a name, with data that does not compress, written to its disk.
fn temporary_file(dir: &Path, size: Size, stop: &Stop) -> Result<File, Problem> {
    let what = || format!("cannot write a file of {size} in {}", shown(&dir));
    let hint = "name a smaller --size, another directory, or a file that exists";
    let space = rustix::fs::statvfs(dir).map_err(|e| Problem::of(what(), e))?;
    let free = |space: &StatVfs| space.f_bavail.saturating_mul(space.f_frsize);
    // Some filesystems report no space at all.
    if space.f_blocks > 0 && free(&space) < size.0 {
        let free = Size(free(&space));
        return Err(Problem::of(
            what(),
            format!("{free} of space are free; {hint}"),
        ));
    }
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|most| most < size.0)
    {
        let message = format!("files are limited to a smaller size (ulimit -f); {hint}");
        return Err(Problem::of(what(), message));
    }
    let failed = |e| Problem::of(what(), format!("{e}; {hint}"));
    let mut file = tempfile::tempfile_in(dir).map_err(failed)?;
    let mut progress = Progress::of_bytes(size.0);
    let mut noise = Noise::new(1);
    let mut written = 0;
    while written < size.0 {
        if stop.asked() {
            return Err(Problem::Interrupted);
        }
        let bytes = noise.bytes(size.0 - written);
        file.write_all(bytes).map_err(failed)?;
        written += bytes.len() as u64;
        // One call at the end would wait for long, and Ctrl-C would wait with it.
        if written.is_multiple_of(CHUNK as u64) || written == size.0 {
            file.sync_data().map_err(failed)?;
        }
        progress.at(written, String::new());
    }
    Ok(file)
}
