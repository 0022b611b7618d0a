//! The files or devices that are read past the page cache, with O_DIRECT: devices in memory, so that
//! figures are those of the interface and not of a disk, or files. Devices are removed when the
//! value is dropped, also after Ctrl-C. If this process is killed, slowdisk's janitor removes them.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use slowdisk::{Filesystem, LoopDevice, TestMount};

use super::bench::Bench;
use super::files::{Files, open_direct};

/// The note of a measurement that reads files, because only root can make devices.
const NO_ROOT: &str = "no root, so no device in memory: files in the current directory were read, and the \
                       figures are those of their disk. Run it under sudo for the cost of the interface alone";

/// The least number of blocks of a file or device.
const FEWEST_BLOCKS: u64 = 100;

/// The files or devices. Dropping it removes what was made.
pub struct Direct {
    pub all: Files,
    /// The first file or device.
    pub first: Files,
    /// `loop` or `files`, for the report.
    pub on: &'static str,
    // Fields are dropped in their order: a device ends before the filesystem that has its file.
    _devices: Vec<LoopDevice>,
    _mount: Option<TestMount>,
}

impl Direct {
    /// Makes devices in memory, or finds or makes files: without root, and if the user names one.
    /// `size` is that of all together.
    pub fn prepare(
        file: Option<&Path>,
        count: u32,
        size: Size,
        bench: &Bench<'_>,
    ) -> Result<Direct, Problem> {
        let each = size.0 / u64::from(count) / 4096 * 4096;
        if each < FEWEST_BLOCKS * 4096 {
            return Err(Problem::Usage(format!(
                "--size {size} is less than {FEWEST_BLOCKS} blocks of 4K for each of {count}: raise it"
            )));
        }
        if file.is_none() && rustix::process::geteuid().is_root() {
            return Direct::devices(count, each, &bench.stop);
        }
        if file.is_none() {
            bench.note(NO_ROOT);
        }
        let shares = vec![1; count as usize];
        let all = Files::prepare((file, size), &shares, 4096, &bench.stop)?;
        for path in &all.paths {
            open_direct(path)?;
        }
        Ok(Direct {
            first: Files::of(all.paths[..1].to_vec(), all.sizes[0]),
            all,
            on: "files",
            _devices: Vec::new(),
            _mount: None,
        })
    }

    /// Makes loop devices over files in a tmpfs. Every kernel has them, and they take asynchronous
    /// operations as a disk does; null_blk and brd cost less, but few kernels have them.
    fn devices(count: u32, each: u64, stop: &Stop) -> Result<Direct, Problem> {
        let failed = |e: slowdisk::Error| {
            Problem::Failed(format!(
                "cannot make a device in memory: {e}; name a --file to read instead"
            ))
        };
        let whole = each * u64::from(count);
        if let Some(free) = available_memory()
            && whole > free / 2
        {
            return Err(Problem::Usage(format!(
                "--size {} is more than half of the {} of free memory: choose a smaller one",
                Size(whole),
                Size(free)
            )));
        }
        // Room for the filesystem's own data.
        let mount = TestMount::builder(Filesystem::Tmpfs).size(whole + (16 << 20));
        let mount = mount.build().map_err(failed)?;
        let mut devices = Vec::new();
        for number in 0..count {
            let path = mount.path().join(format!("disk-{number}"));
            fill(&path, each, stop)?;
            devices.push(LoopDevice::attach_with_sectors(&path, 512).map_err(failed)?);
        }
        let paths: Vec<_> = devices.iter().map(|d| d.path().to_owned()).collect();
        Ok(Direct {
            first: Files::of(paths[..1].to_vec(), each),
            all: Files::of(paths, each),
            on: "loop",
            _devices: devices,
            _mount: Some(mount),
        })
    }
}

/// Makes a file with this many bytes of data.
fn fill(path: &Path, size: u64, stop: &Stop) -> Result<(), Problem> {
    let of = |e: std::io::Error| Problem::of(path.display(), e);
    let mut file = File::create_new(path).map_err(of)?;
    let piece = vec![0xa5u8; 1 << 20];
    let mut left = size;
    while left > 0 {
        if stop.asked() {
            return Err(Problem::Interrupted);
        }
        let n = left.min(piece.len() as u64);
        file.write_all(&piece[..n as usize]).map_err(of)?;
        left -= n;
    }
    Ok(())
}
