//! The files or devices that are read: those that the user names, or a device in memory that is
//! made here and removed at the end. Without root it is a file in the current directory.

use std::path::PathBuf;

use super::Args;
use crate::harness::bench::Bench;
use crate::harness::files::{Files, Wanted, length, open_direct};
use crate::harness::memory_devices::{Memory, MemoryDevices, NO_ROOT};
use nowait::Handle;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;

/// The files or devices. Dropping it removes what was made.
pub struct Ground {
    pub files: Files,
    _devices: Option<MemoryDevices>,
}

/// The least number of blocks of a file.
const FEWEST_BLOCKS: u64 = 100;

impl Ground {
    /// Finds or makes the files or devices.
    pub fn prepare(args: &Args, bench: &Bench<'_>) -> Result<Ground, Problem> {
        let mut ground = Ground {
            files: Files::of(args.paths.clone(), 0),
            _devices: None,
        };
        if args.paths.is_empty() {
            ground.make(args, bench)?;
        }
        let least = blocks(&ground.files.paths, args.block)?;
        ground.files.sizes.fill(least * args.block.0);
        Ok(ground)
    }

    fn make(&mut self, args: &Args, bench: &Bench<'_>) -> Result<(), Problem> {
        let block = args.block.0;
        if args.size.0 / block < FEWEST_BLOCKS {
            return Err(Problem::Usage(format!(
                "--size {} is less than {FEWEST_BLOCKS} blocks of {}: raise it",
                args.size, args.block
            )));
        }
        if MemoryDevices::allowed() {
            let size = args.size.0 / block * block;
            let device = MemoryDevices::make(Memory::Loop, 1, size, &bench.stop)?;
            self.files = device.all();
            self._devices = Some(device);
        } else {
            let wanted = Wanted {
                path: None,
                size: args.size,
                shares: &[1],
                block,
            };
            self.files = Files::prepare(wanted, &bench.stop)?;
            bench.note(NO_ROOT);
        }
        Ok(())
    }
}

/// The number of blocks in the smallest of these files. All can be read in such blocks with
/// O_DIRECT.
fn blocks(paths: &[PathBuf], block: Size) -> Result<u64, Problem> {
    let mut least = u64::MAX;
    for path in paths {
        let shown = path.display();
        let file = open_direct(path, false)?;
        let length = length(&file).map_err(|e| Problem::of(&shown, e))?;
        let unit = Handle::new(file)?
            .alignment()
            .map(|a| u64::from(a.read_offset));
        if let Some(unit) = unit.filter(|unit| !block.0.is_multiple_of(*unit)) {
            return Err(Problem::Usage(format!(
                "--block {block}: {shown} takes multiples of {unit} bytes with O_DIRECT"
            )));
        }
        if length / block.0 < FEWEST_BLOCKS {
            return Err(Problem::Usage(format!(
                "{shown} has {length} bytes, less than {FEWEST_BLOCKS} blocks of {block}: name a \
                 larger file, or choose a smaller --block"
            )));
        }
        least = least.min(length / block.0);
    }
    Ok(least)
}
