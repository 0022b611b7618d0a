//! What is read: a file, devices that the user names, or devices in memory that are made here and are
//! gone at the end (also after Ctrl-C; and if this process is killed, by the rig's janitor).

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use slowdisk::{Filesystem, LoopDevice, TestMount, Zram};

use super::Args;
use super::load;
use crate::harness::files::{Files, Wanted};
use nowait_cli::problem::Problem;
use nowait_cli::proc::available_memory;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;

/// A device in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// A loop device over a file in a tmpfs: done by threads of the kernel's, in blocks of 512
    Loop,
    /// zram: done within its submission, in blocks of 4K; never written, so that it hands out zeros.
    /// It can't be asked not to wait, so a ring hands every operation to a thread of the kernel's
    Zram,
}

/// Where everything happens. Dropped, all that was made is taken down.
pub struct Ground {
    /// What the tables are of, the first of it alone for all but IOPS per core.
    pub all: Files,
    pub first: Files,
    /// What reads of less than a block of those go to, if there is something else for them.
    pub small: Option<Files>,
    pub what: What,
    pub notes: Vec<String>,
    _place: Place,
}

/// In a word, for the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Files,
    Devices,
    Zram,
    Loop,
}

/// Fields are dropped in their order.
enum Place {
    Files,
    /// Held open for as long as it is written to: nobody can mount it meanwhile.
    Devices {
        _claims: Vec<File>,
    },
    Memory {
        _zram: Vec<Zram>,
        _loops: Box<Loops>,
    },
}

#[derive(Default)]
struct Loops {
    devices: Vec<LoopDevice>,
    _mount: Option<TestMount>,
}

/// The least that reads go to, in blocks.
const FEWEST_BLOCKS: u64 = 64;

impl Ground {
    /// Finds or makes it.
    pub fn prepare(args: &Args, smallest: u64, stop: &Stop) -> Result<Ground, Problem> {
        if !args.device.is_empty() {
            return Ground::devices(args);
        }
        let root = rustix::process::geteuid().is_root();
        match (&args.file, args.memory) {
            (None, memory) if root => Ground::memory(args, memory, smallest, stop),
            (None, Some(_)) => Err(Problem::Usage(
                "only root can make a device in memory: run it under sudo, or without --memory (then \
                 a file is read), or name a --file"
                    .into(),
            )),
            _ => {
                let mut ground = Ground::files(args, stop)?;
                if args.file.is_none() {
                    ground.notes.push(
                        "no root, so no device in memory: files in the current directory were read, \
                         and the figures are of their disk. For the interface's own cost run it under \
                         sudo"
                            .into(),
                    );
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
                "--write overwrites what it is given, and {} is there already: name a --file that is \
                 not there yet",
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
            .try_for_each(|path| load::open(path, args.write).map(drop));
        opened?;
        let first = Files::of(all.paths[..1].to_vec(), all.sizes[0]);
        Ok(Ground {
            first,
            all,
            small: None,
            what: What::Files,
            notes: Vec::new(),
            _place: Place::Files,
        })
    }

    /// The user's own, only read unless it was said otherwise.
    fn devices(args: &Args) -> Result<Ground, Problem> {
        let mut notes = Vec::new();
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
                notes.push(format!("overwritten: random blocks all over {shown}"));
                eprintln!("nowait: --write overwrites random blocks all over {shown}");
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
            notes,
            _place: Place::Devices { _claims: claims },
        })
    }

    /// Made here: loop devices, also for blocks that zram has not. Of what every kernel has they alone
    /// take operations as a disk does; null_blk and brd cost less, and few kernels have them.
    fn memory(
        args: &Args,
        memory: Option<Memory>,
        smallest: u64,
        stop: &Stop,
    ) -> Result<Ground, Problem> {
        let each = args.size.0 / u64::from(args.count) / 4096 * 4096;
        if each < FEWEST_BLOCKS * 4096 {
            return Err(Problem::Usage(format!(
                "--size {} is less than {FEWEST_BLOCKS} blocks of 4K for each of {} devices: raise it",
                args.size, args.count
            )));
        }
        let mut notes = Vec::new();
        let zram = memory == Some(Memory::Zram);
        let mut zrams = Vec::new();
        let mut loops = Loops::default();
        if zram {
            for _ in 0..args.count {
                zrams.push(Zram::new(each).map_err(failed)?);
            }
            notes.push(
                "zram can't be asked not to wait: a ring hands every operation to a thread of the \
                 kernel's, and libaio waits in the caller"
                    .into(),
            );
            if smallest < 4096 {
                loops = Loops::make(1, each, stop)?;
                notes.push(
                    "zram has blocks of 4K: the smaller ones are read from a loop device over a tmpfs, \
                     whose requests threads of the kernel's carry out"
                        .into(),
                );
            }
        } else {
            loops = Loops::make(args.count, each, stop)?;
        }
        let of_loops: Vec<PathBuf> = loops.devices.iter().map(|d| d.path().to_owned()).collect();
        let paths = match zram {
            true => zrams.iter().map(|zram| zram.path().to_owned()).collect(),
            false => of_loops.clone(),
        };
        Ok(Ground {
            first: Files::of(paths[..1].to_vec(), each),
            all: Files::of(paths, each),
            small: (zram && !of_loops.is_empty()).then(|| Files::of(of_loops, each)),
            what: if zram { What::Zram } else { What::Loop },
            notes,
            _place: Place::Memory {
                _zram: zrams,
                _loops: Box::new(loops),
            },
        })
    }

    /// What blocks of this size go to.
    pub fn files_for(&self, block: u64, several: bool) -> &Files {
        match &self.small {
            Some(small) if block < 4096 => small,
            _ if several => &self.all,
            _ => &self.first,
        }
    }
}

impl Loops {
    fn make(count: u32, each: u64, stop: &Stop) -> Result<Loops, Problem> {
        let whole = each * u64::from(count);
        if let Some(free) = available_memory()
            && whole > free / 2
        {
            return Err(Problem::Usage(format!(
                "{} of {} free memory is much: choose a smaller --size",
                Size(whole),
                Size(free)
            )));
        }
        // Some room for the filesystem's own.
        let mount = TestMount::builder(Filesystem::Tmpfs).size(whole + (16 << 20));
        let mount = mount.build().map_err(failed)?;
        let mut devices = Vec::new();
        for number in 0..count {
            let path = mount.path().join(format!("disk-{number}"));
            fill(&path, each, stop)?;
            devices.push(LoopDevice::attach_with_sectors(&path, 512).map_err(failed)?);
        }
        Ok(Loops {
            devices,
            _mount: Some(mount),
        })
    }
}

fn failed(error: slowdisk::Error) -> Problem {
    Problem::Failed(format!(
        "cannot make a device in memory: {error}; name a --file or a --device instead"
    ))
}

/// A file with so many bytes in it.
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

/// Takes a device for writing: refused by the kernel while it, or a part of it, is mounted or has
/// another owner.
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
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(of)
}
