//! The options of a slow disk, and the disk: files of a bench lie on it in place of this machine's
//! disk.

use std::fmt;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;
use serde::{Serialize, Serializer};
use slowdisk::{Filesystem, SlowDisk, TestMount};

use super::delay::Delay;

/// The properties of the slow disk.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Slow {
    /// Make the files on a disk whose requests take this time, for example 1ms (needs root)
    #[arg(
        long = "slow-disk",
        id = "slow_disk",
        value_name = "TIME",
        required = false
    )]
    #[serde(rename = "latency_us")]
    latency: Delay,

    /// How many requests the slow disk serves at once
    #[arg(long, value_name = "N", default_value_t = 64, requires = "slow_disk",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    queue: u16,

    /// The additional time of a request of the slow disk that moves its head
    #[arg(long, value_name = "TIME", default_value = "0", requires = "slow_disk")]
    #[serde(rename = "seek_us")]
    seek: Delay,

    /// The slow disk's filesystem
    #[arg(long = "fs", value_name = "FS", default_value = "ext4", requires = "slow_disk",
          value_parser = PossibleValuesParser::new(["ext4", "xfs", "btrfs"])
              .try_map(|name| name.parse::<Filesystem>()))]
    #[serde(serialize_with = "name")]
    filesystem: Filesystem,
}

fn name<S: Serializer>(filesystem: &Filesystem, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(filesystem.name())
}

/// Bytes of a slow disk for its filesystem. Blocks that are never written take no memory.
const BYTES_FOR_ITSELF: u64 = 1 << 30;

impl Slow {
    /// Makes the slow disk, with a filesystem that has room for this many files, which take this
    /// many bytes. The mount must be dropped before the disk.
    pub fn build(&self, files: u64, bytes: u64) -> Result<(SlowDisk, TestMount), Problem> {
        if let Some(memory) = available_memory()
            && bytes > memory / 2
        {
            return Err(Problem::Usage(format!(
                "{files} files may take {} of a disk in memory, {} are free: choose fewer files",
                Size(bytes),
                Size(memory)
            )));
        }
        let failed = |e: slowdisk::Error| Problem::Failed(e.to_string());
        let disk = SlowDisk::builder()
            .size(BYTES_FOR_ITSELF + bytes)
            .latency(self.latency.time())
            .seek(self.seek.time())
            .queue(usize::from(self.queue))
            .build()
            .map_err(failed)?;
        let mut mount = TestMount::builder(self.filesystem);
        if self.filesystem == Filesystem::Ext4 {
            // By default ext4 has one inode for every 16 KiB.
            mount = mount.mkfs_arg(format!("-N{}", files + files / 8 + 1024));
        }
        let mount = mount.on(&disk).map_err(failed)?;
        Ok((disk, mount))
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a slow disk: {} a request", self.latency)?;
        if !self.seek.time().is_zero() {
            write!(f, ", {} more for a seek", self.seek)?;
        }
        write!(f, ", {} at once", self.queue)
    }
}
