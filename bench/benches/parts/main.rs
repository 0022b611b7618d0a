//! The parts of nowait that take about a microsecond: a read of cached data, a nop through an engine, the
//! plan of a read, the completion queue, and the entries of a directory.
//!
//! ```sh
//! make bench-parts                      # all
//! make bench-parts ARGS='hit --quick'   # one part, for a short time
//! ```
//! The last three are private: `nowait::internals` has them in builds with `--cfg nowait_internals`, which
//! `make bench-parts` sets. Each benchmark checks its results before it is timed.

#[cfg(nowait_internals)]
mod completions;
#[cfg(nowait_internals)]
mod dirents;
mod hit;
mod nop;
#[cfg(nowait_internals)]
mod plan;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hit::bench(&mut criterion);
    nop::bench(&mut criterion);
    #[cfg(nowait_internals)]
    {
        plan::bench(&mut criterion);
        completions::bench(&mut criterion);
        dirents::bench(&mut criterion);
    }
    criterion.final_summary();
}
