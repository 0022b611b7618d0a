//! The processor core that a measuring thread stays on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use nowait_cli::problem::Problem;

/// The last core that this process may run on: small machines serve their interrupts on the first
/// one.
pub fn last() -> Result<usize, Problem> {
    let cores = sched_getaffinity(None).map_err(|e| Problem::of("sched_getaffinity", e))?;
    let mut mine = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core));
    Ok(mine.next_back().unwrap_or(0))
}

/// Restricts the calling thread to one core, of a number below 1024: sched_setaffinity(2).
pub fn stay_on(core: usize) -> Result<(), Problem> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores)
        .map_err(|e| Problem::of(format_args!("cannot stay on core {core}"), e))
}
