//! The files or devices that are measured: a file, devices that the user names, or devices in
//! memory that are made here and removed at the end.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Args;
use crate::harness::bench::Bench;
use crate::harness::files::{Files, Wanted, length, open_direct};
use crate::harness::memory_devices::{Memory, MemoryDevices, NO_ROOT};
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// The files or devices. Dropping it removes everything that was made.
pub struct Ground {
    /// All of them, for the table per-core.
    pub all: Files,
    /// The first of them, for the other tables.
    pub first: Files,
    /// A device for operations that are smaller than a block of the others.
    pub small: Option<Files>,
    pub what: What,
    _place: Place,
}

/// The kind of files or devices, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Files,
    Devices,
    Zram,
    Loop,
}

/// The things that end with the measurement. Fields are dropped in their order.
enum Place {
    Files,
    /// Descriptors with O_EXCL, so that a device cannot be mounted while it is overwritten.
    Devices {
        _claims: Vec<File>,
    },
    Memory {
        _devices: Box<[MemoryDevices]>,
    },
}

/// The least number of blocks of a file or device.
const FEWEST_BLOCKS: u64 = 64;

impl Ground {
    /// Finds or makes the files or devices.
    pub fn prepare(args: &Args, smallest: u64, bench: &Bench<'_>) -> Result<Ground, Problem> {
        if !args.device.is_empty() {
            return Ground::devices(args, bench);
        }
        match (&args.file, args.memory) {
            (None, memory) if MemoryDevices::allowed() => Ground::memory(args, memory, smallest, bench),
            (None, Some(_)) => Err(Problem::Usage(
                "only root can make a device in memory: run it under sudo, or without --memory (then \
                 a file is read), or name a --file"
                    .into(),
            )),
            _ => {
                let ground = Ground::files(args, &bench.stop)?;
                if args.file.is_none() {
                    bench.note(NO_ROOT);
                }
                Ok(ground)
            }
        }
    }

    fn files(args: &Args, stop: &Stop) -> Result<Ground, Problem> {
        let shares = vec![1; args.count as usize];
        let there = |path: &&PathBuf| match args.count {
            1 => path.exists(),
            n => (0..n).any(|i| PathBuf::from(format!("{}-{i}", path.display())).exists()),
        };
        if let Some(path) = args.file.as_ref().filter(there).filter(|_| args.write) {
            return Err(Problem::Usage(format!(
                "--write overwrites its file, and {} is there already: name a --file that does not \
                 exist yet",
                path.display()
            )));
        }
        let all = Files::prepare(
            Wanted {
                path: args.file.as_deref(),
                size: args.size,
                shares: &shares,
                block: 4096,
            },
            stop,
        )?;
        let opened = all
            .paths
            .iter()
            .try_for_each(|path| open_direct(path, args.write).map(drop));
        opened?;
        let first = Files::of(all.paths[..1].to_vec(), all.sizes[0]);
        Ok(Ground {
            first,
            all,
            small: None,
            what: What::Files,
            _place: Place::Files,
        })
    }

    /// The devices that the user names. They are only read, unless --write is given.
    fn devices(args: &Args, bench: &Bench<'_>) -> Result<Ground, Problem> {
        let mut claims = Vec::new();
        for path in &args.device {
            let shown = path.display();
            let meta = fs::metadata(path).map_err(|e| Problem::of(&shown, e))?;
            if !meta.file_type().is_block_device() {
                return Err(Problem::Usage(format!(
                    "{shown} is no block device: name a file with --file"
                )));
            }
            if args.write {
                claims.push(claim(path)?);
                bench.note(format!("overwritten: random blocks all over {shown}"));
                eprintln!("nowait-bench: --write overwrites random blocks all over {shown}");
            }
        }
        let sizes = args
            .device
            .iter()
            .map(|path| size_of(path))
            .collect::<Result<Vec<_>, _>>()?;
        let least = sizes.into_iter().min().unwrap_or(0) / 4096 * 4096;
        if least < FEWEST_BLOCKS * 4096 {
            return Err(Problem::Usage(format!(
                "the smallest --device has {}: less than {FEWEST_BLOCKS} blocks of 4K",
                Size(least)
            )));
        }
        Ok(Ground {
            all: Files::of(args.device.clone(), least),
            first: Files::of(args.device[..1].to_vec(), least),
            small: None,
            what: What::Devices,
            _place: Place::Devices { _claims: claims },
        })
    }

    /// Makes devices in memory. A loop device also serves blocks that are too small for zram.
    fn memory(
        args: &Args,
        memory: Option<Memory>,
        smallest: u64,
        bench: &Bench<'_>,
    ) -> Result<Ground, Problem> {
        let each = args.size.0 / u64::from(args.count) / 4096 * 4096;
        if each < FEWEST_BLOCKS * 4096 {
            return Err(Problem::Usage(format!(
                "--size {} is less than {FEWEST_BLOCKS} blocks of 4K for each of {} devices: raise it",
                args.size, args.count
            )));
        }
        let kind = memory.unwrap_or(Memory::Loop);
        let mut devices = vec![MemoryDevices::make(kind, args.count, each, &bench.stop)?];
        let mut small = None;
        if kind == Memory::Zram {
            bench.note(
                "zram does not support RWF_NOWAIT: a ring passes every operation to a kernel thread, and \
                 libaio waits in the calling thread",
            );
            if smallest < 4096 {
                let device = MemoryDevices::make(Memory::Loop, 1, each, &bench.stop)?;
                small = Some(device.all());
                devices.push(device);
                bench.note(
                    "zram has blocks of 4K: smaller ones are read from a loop device over a tmpfs, which \
                     kernel threads serve",
                );
            }
        }
        Ok(Ground {
            all: devices[0].all(),
            first: devices[0].first(),
            small,
            what: match kind {
                Memory::Zram => What::Zram,
                Memory::Loop => What::Loop,
            },
            _place: Place::Memory {
                _devices: devices.into(),
            },
        })
    }

    /// The files or devices for operations of this size.
    pub fn files_for(&self, block: u64, several: bool) -> &Files {
        match &self.small {
            Some(small) if block < 4096 => small,
            _ if several => &self.all,
            _ => &self.first,
        }
    }
}

/// Opens a device for writing with O_EXCL. The kernel refuses this while the device or a part of it
/// is mounted or in use.
fn claim(path: &Path) -> Result<File, Problem> {
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let taken = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(exclusive)
        .open(path);
    taken.map_err(|e| {
        let shown = path.display();
        match e.raw_os_error() {
            Some(libc::EBUSY) => Problem::Usage(format!(
                "{shown} is in use (mounted, swap, or part of another device): --write would destroy \
                 what is on it. Unmount it first, or leave out --write"
            )),
            _ => Problem::of(format_args!("cannot open {shown} for writing"), e),
        }
    })
}

fn size_of(device: &Path) -> Result<u64, Problem> {
    let of = |e| Problem::of(format_args!("cannot open {}", device.display()), e);
    File::open(device)
        .and_then(|file| length(&file))
        .map_err(of)
}
