//! Puts the page cache into the state of a cell, before every turn.

use nowait_cli::problem::Problem;

use crate::areas::runtimes::cell::Work;
use crate::areas::runtimes::turn::Turn;
use crate::harness::cache::{evict, resident, warm, warm_blocks};
use crate::harness::files::open;
use crate::harness::memory;

/// The way it is done, for the report.
pub const HOW: &str = "cached: the file's first 256 MiB are read through before a turn unless all of them are in the \
     page cache; cold: POSIX_FADV_DONTNEED until no page is, then as much \
     memory as the file needs is used and freed; mixed: the same, then the blocks that are \
     to be hits are read, without readahead; writes: fdatasync(2) before a turn, all pages cached";

/// Puts the page cache into the state for a turn.
pub fn prepare(turn: &Turn) -> Result<(), Problem> {
    let (file, span) = ([open(&turn.file)?], turn.cell.span(turn.size));
    let cold = || {
        evict(&file)?;
        if resident(&file).is_some_and(|there| there > 0) {
            return Err(Problem::Failed(
                "it stays in the page cache: another program maps or writes it, or its filesystem is in memory"
                    .into(),
            ));
        }
        memory::touch(turn.size);
        Ok(())
    };
    match turn.cell.work {
        Work::Cached => warm(&file[0], span),
        Work::Cold => cold(),
        Work::Mixed(rate) => {
            cold()?;
            let places = turn.places();
            let all = turn.cell.reads(turn.size).unwrap_or(0) + turn.cell.lead() * turn.cell.tasks;
            let hits = (0..all).filter(|&i| places.is_hit(i, rate));
            let block = turn.cell.block;
            let blocks: Vec<u64> = hits.map(|i| turn.place(&places, i) / block).collect();
            warm_blocks(&file[0], &blocks, block)
        }
        Work::Sequential | Work::Positional => {
            file[0]
                .sync_data()
                .map_err(|e| Problem::of("fdatasync", e))?;
            warm(&file[0], span)
        }
    }
}
