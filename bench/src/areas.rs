//! The areas that are measured, one module each.

mod aio;
mod directories;
mod iops;
mod mix;
mod page_cache;
mod residency;
mod ring;
mod runtimes;

use std::process::ExitCode;

use clap::Subcommand;
use nowait_cli::deferred::Deferred;
use nowait_cli::problem::Problem;

use crate::harness::plan::conduct;
use page_cache::{cached, hitrate, randread, syscalls};

/// The verbs of `nowait-bench`.
#[derive(Subcommand)]
pub enum Area {
    /// POSIX AIO under fio: glibc's, and nowait's drop-in
    #[command(after_help = aio::AFTER)]
    Aio(Deferred<aio::Args>),
    /// Random reads of a cold file, many in flight: preadv, threads, io_uring and nowait side by side
    #[command(after_help = AFTER)]
    Randread(Deferred<randread::Args>),
    /// The cost of a hit: random reads of a file that is in the page cache
    #[command(after_help = AFTER)]
    Cached(Deferred<cached::Args>),
    /// A database's reads at once: mostly cached, mostly not, sequential; pools, a ring, nowait
    #[command(after_help = mix::AFTER)]
    Mix(Deferred<mix::Args>),
    /// The cost of a read at each hit rate: trying the page cache always, never, and as nowait decides
    #[command(after_help = hitrate::AFTER)]
    Hitrate(Deferred<hitrate::Args>),
    /// The cost of each call: doctor's table, repeated, with medians and spread
    #[command(after_help = syscalls::AFTER)]
    Syscalls(Deferred<syscalls::Args>),
    /// Ask, then read: how often is the page gone in between?
    #[command(after_help = residency::AFTER)]
    Race(Deferred<residency::Args>),
    /// Listing a directory and asking about every entry: scan, readahead, ls, find, bfs, du
    #[command(after_help = directories::AFTER)]
    Dir(Deferred<directories::Args>),
    /// Operations per second past the page cache: the tables that io_uring was proposed with
    #[command(after_help = iops::AFTER)]
    Iops(Deferred<iops::Args>),
    /// nowait for tokio beside tokio::fs, tokio-uring, compio and spawn_blocking
    Runtimes(Deferred<runtimes::Args>),
    /// nowait's LocalEngine beside the bare ring: the crate io-uring, and liburing
    Ring(Deferred<ring::Args>),
    /// One turn of `dir`
    #[command(hide = true)]
    DirInside(Deferred<directories::inside::Args>),
    /// The process under pressure of `race`
    #[command(hide = true)]
    RaceInside(Deferred<residency::inside::Args>),
    /// One turn of `runtimes`: its description on standard input, its round on standard output
    #[command(hide = true)]
    RuntimesInside,
}

pub const AFTER: &str = "\
Contenders take turns within each round, on the same file, at the same places, with the same advice,
and the page cache is put into the same state before each turn. Ratios are taken within rounds.
Ctrl-C ends a bench and prints what it has; a second one ends it at once, and then a file that is
removed at the end stays.

JSON (--json), the same for every area: {\"area\", \"version\", \"command\", \"machine\", \"settings\",
\"interrupted\", \"notes\", \"cells\": [{\"name\", \"parameters\", \"contenders\": [{\"name\", \"ours\",
\"rounds\": [ROUND], \"median\": ROUND, \"spread\"}], \"absent\": [{\"name\", \"why\"}], \"ratios\": {\"A/B\":
{\"rounds\", \"coverage\", FIGURE: {\"median\", \"low95\", \"high95\"}}}}], \"findings\", \"tables\", \"charts\"};
ROUND has the area's figures, for example ops, seconds, ops_per_s, cpu_us_per_op, lat_us {p50 … max}.
A figure below an object is named by its path, for example \"lat_us/p99\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

impl Area {
    /// Measures the area and prints its report.
    pub fn run(&self) -> Result<ExitCode, Problem> {
        match self {
            Area::Aio(args) => aio::run(args),
            Area::Randread(args) => args.plan().and_then(conduct),
            Area::Cached(args) => args.plan().and_then(conduct),
            Area::Hitrate(args) => hitrate::run(args),
            Area::Mix(args) => mix::run(args),
            Area::Syscalls(args) => syscalls::run(args),
            Area::Race(args) => residency::run(args),
            Area::Dir(args) => directories::run(args),
            Area::Iops(args) => iops::run(args),
            Area::Runtimes(args) => runtimes::run(args),
            Area::Ring(args) => ring::run(args),
            Area::DirInside(args) => directories::inside::run(args),
            Area::RaceInside(args) => residency::inside::run(args),
            Area::RuntimesInside => runtimes::run_turn(),
        }
    }
}
