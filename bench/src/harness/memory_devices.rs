//! Devices in memory, so that figures are those of the interface and not of a disk. They are
//! removed when the value is dropped, also after Ctrl-C. If this process is killed, slowdisk's
//! janitor removes them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use slowdisk::{Filesystem, LoopDevice, TestMount, Zram};

use super::files::Files;
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The kind of a device in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// A loop device over a file in a tmpfs: blocks of 512 bytes, served by kernel threads
    Loop,
    /// zram: blocks of 4K, served in the call that submits them. It does not support RWF_NOWAIT, so
    /// a ring passes every operation to a kernel thread. Reads return zeros, because it is empty
    Zram,
}

/// The note of a measurement that reads files, because only root can make devices.
pub const NO_ROOT: &str = "no root, so no device in memory: files in the current directory were read, and the \
                           figures are those of their disk. Run it under sudo for the cost of the interface alone";

/// Devices of one kind and size.
pub struct MemoryDevices {
    /// The paths of the devices, and their size.
    paths: Vec<PathBuf>,
    each: u64,
    // Fields are dropped in their order: a device ends before the filesystem that has its file.
    zrams: Vec<Zram>,
    loops: Vec<LoopDevice>,
    mount: Option<TestMount>,
}

impl MemoryDevices {
    /// Returns true if this process may make devices.
    pub fn allowed() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Makes devices of `each` bytes. Every kernel has loop devices, and they take asynchronous
    /// operations as a disk does; null_blk and brd cost less, but few kernels have them.
    pub fn make(
        kind: Memory,
        count: u32,
        each: u64,
        stop: &Stop,
    ) -> Result<MemoryDevices, Problem> {
        let mut made = MemoryDevices {
            paths: Vec::new(),
            each,
            zrams: Vec::new(),
            loops: Vec::new(),
            mount: None,
        };
        match kind {
            Memory::Loop => made.add_loops(count, stop)?,
            Memory::Zram => made.add_zrams(count)?,
        }
        Ok(made)
    }

    /// All devices.
    pub fn all(&self) -> Files {
        Files::of(self.paths.clone(), self.each)
    }

    /// The first device.
    pub fn first(&self) -> Files {
        Files::of(self.paths[..1].to_vec(), self.each)
    }

    fn add_zrams(&mut self, count: u32) -> Result<(), Problem> {
        for _ in 0..count {
            let device = Zram::new(self.each).map_err(failed)?;
            self.paths.push(device.path().to_owned());
            self.zrams.push(device);
        }
        Ok(())
    }

    fn add_loops(&mut self, count: u32, stop: &Stop) -> Result<(), Problem> {
        let whole = self.each * u64::from(count);
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
        let mount = self.mount.insert(mount.build().map_err(failed)?);
        for number in 0..count {
            let path = mount.path().join(format!("disk-{number}"));
            fill(&path, self.each, stop)?;
            let device = LoopDevice::attach_with_sectors(&path, 512).map_err(failed)?;
            self.paths.push(device.path().to_owned());
            self.loops.push(device);
        }
        Ok(())
    }
}

fn failed(error: slowdisk::Error) -> Problem {
    Problem::Failed(format!(
        "cannot make a device in memory: {error}; name a file or device to read instead"
    ))
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
