//! The areas that are measured, one module each.

mod ahead;
mod aio;
mod asks;
mod directories;
pub mod iops;
mod keep_cache;
mod mix;
mod object_store;
mod page_cache;
mod programs;
mod residency;
mod ring;
mod runtimes;
mod server;
mod sources;
mod tools;

use std::process::ExitCode;

use clap::Subcommand;
use nowait_cli::deferred::Deferred;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;

use page_cache::{cached, hitrate, mapped, randread, syscalls};

/// The verbs of `nowait-bench`.
#[derive(Subcommand)]
pub enum Area {
    /// Programs that read trees: alone, under nowait run, and beside nowait warm --metadata
    #[command(after_help = ahead::AFTER)]
    Ahead(Deferred<ahead::Args>),
    /// Programs of all kinds: alone, under nowait run, and with --data
    #[command(after_help = programs::AFTER)]
    Programs(Deferred<programs::Args>),
    /// POSIX AIO under fio: glibc's, and nowait's drop-in library
    #[command(after_help = aio::AFTER)]
    Aio(Deferred<aio::Args>),
    /// Random reads of a cold file, many in flight: preadv, threads, io_uring and nowait side by
    /// side
    #[command(after_help = AFTER)]
    Randread(Deferred<randread::Args>),
    /// The cost of a hit: random reads of a file that is in the page cache
    #[command(after_help = AFTER)]
    Cached(Deferred<cached::Args>),
    /// Mapped files: copies and borrowed bytes of a file that is in the page cache
    #[command(after_help = AFTER)]
    Mapped(Deferred<mapped::Args>),
    /// The reads of a database: mostly cached, mostly uncached and sequential ones at once
    #[command(after_help = mix::AFTER)]
    Mix(Deferred<mix::Args>),
    /// The cost of a read at each hit rate: trying the page cache always, never, and as nowait
    /// decides
    #[command(after_help = hitrate::AFTER)]
    Hitrate(Deferred<hitrate::Args>),
    /// The cost of each call: the table of `nowait doctor`, repeated, with medians and spread
    #[command(after_help = syscalls::AFTER)]
    Syscalls(Deferred<syscalls::Args>),
    /// How long it takes to ask how much of files is in the page cache
    #[command(after_help = asks::AFTER)]
    Asks(Deferred<asks::Args>),
    /// How often a page that was reported as cached is gone when it is read
    #[command(after_help = residency::AFTER)]
    Race(Deferred<residency::Args>),
    /// Listing a directory with the attributes of every entry: scan, readahead, ls, find, bfs, du, dust, pdu
    #[command(after_help = directories::AFTER)]
    Dir(Deferred<directories::Args>),
    /// Operations per second past the page cache: the tables that io_uring was proposed with
    #[command(after_help = iops::AFTER)]
    Iops(Deferred<iops::Args>),
    /// nowait for tokio beside tokio::fs, tokio-uring, compio and spawn_blocking
    #[command(after_help = runtimes::AFTER)]
    Runtimes(Deferred<runtimes::Args>),
    /// nowait's LocalEngine beside the bare ring: the crate io-uring
    #[command(after_help = ring::AFTER)]
    Ring(Deferred<ring::Args>),
    /// HTTP file servers: cached files beside files that come from the disk, over loopback TCP
    #[command(after_help = server::AFTER)]
    Server(Deferred<server::Args>),
    /// An object store in a directory: NowaitFileSystem beside LocalFileSystem
    #[command(after_help = object_store::AFTER)]
    ObjectStore(Deferred<object_store::Args>),
    /// All files of a source tree: nowait beside rayon with std::fs::read
    #[command(after_help = sources::AFTER)]
    Sources(Deferred<sources::Args>),
    /// The tools for the page cache beside others: nowait, vmtouch, util-linux fincore, cat
    #[command(after_help = tools::AFTER)]
    Tools(Deferred<tools::Args>),
    /// Programs that leave the page cache as it was: nowait run --keep-cache, nocache
    #[command(after_help = keep_cache::AFTER)]
    KeepCache(Deferred<keep_cache::Args>),
    /// One turn of `dir`
    #[command(hide = true)]
    DirInside(Deferred<directories::inside::Args>),
    /// The process under pressure of `race`
    #[command(hide = true)]
    RaceInside,
    /// One turn of `runtimes`: reads its description on standard input, prints its round
    #[command(hide = true)]
    RuntimesInside,
}

/// The text after the help of the program and of most areas.
pub const AFTER: &str = "\
Contenders take turns within each round, on the same file, at the same places, with the same advice.
The page cache is put into the same state before each turn. Ratios are taken within rounds.
Ctrl-C ends the bench and prints what was measured; a second one ends the program at once, and a
temporary file stays.

JSON (--json), the same for every area: {\"area\", \"version\", \"command\", \"date\", \"machine\",
\"settings\", \"interrupted\", \"notes\", \"cells\": [{\"name\", \"parameters\", \"contenders\": [{\"name\", \"ours\",
\"rounds\": [ROUND], \"median\": ROUND, \"spread\"}], \"absent\": [{\"name\", \"why\"}], \"ratios\": {\"A/B\":
{\"rounds\", \"coverage\", FIGURE: {\"median\", \"low95\", \"high95\"}}}}], \"findings\", \"tables\", \"charts\"};
ROUND has the area's figures, for example ops, seconds, ops_per_s, cpu_us_per_op, lat_us {p50 … max}.
A figure below an object is named by its path, for example \"lat_us/p99\".

Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted (what was measured is printed).";

impl Area {
    /// Measures the area and prints its report.
    pub fn run(&self) -> Result<ExitCode, Problem> {
        let measure: &dyn Fn(Stop) -> Result<ExitCode, Problem> = match self {
            Area::Ahead(args) => &|stop| ahead::run(args, stop),
            Area::Programs(args) => &|stop| programs::run(args, stop),
            Area::Aio(args) => &|stop| aio::run(args, stop),
            Area::Randread(args) => &|stop| randread::run(args, stop),
            Area::Cached(args) => &|stop| cached::run(args, stop),
            Area::Mapped(args) => &|stop| mapped::run(args, stop),
            Area::Hitrate(args) => &|stop| hitrate::run(args, stop),
            Area::Mix(args) => &|stop| mix::run(args, stop),
            Area::Syscalls(args) => &|stop| syscalls::run(args, stop),
            Area::Sources(args) => &|stop| sources::run(args, stop),
            Area::Asks(args) => &|stop| asks::run(args, stop),
            Area::Race(args) => &|stop| residency::run(args, stop),
            Area::Dir(args) => &|stop| directories::run(args, stop),
            Area::Iops(args) => &|stop| iops::run(args, stop),
            Area::Runtimes(args) => &|stop| runtimes::run(args, stop),
            Area::Ring(args) => &|stop| ring::run(args, stop),
            Area::Server(args) => &|stop| server::run(args, stop),
            Area::ObjectStore(args) => &|stop| object_store::run(args, stop),
            Area::Tools(args) => &|stop| tools::run(args, stop),
            Area::KeepCache(args) => &|stop| keep_cache::run(args, stop),
            Area::DirInside(args) => return directories::inside::run(args),
            Area::RaceInside => return residency::inside::run(),
            Area::RuntimesInside => return runtimes::run_turn(),
        };
        let stop = Stop::by_handlers()?;
        match measure(stop.clone()) {
            // A terminal sends Ctrl-C to child processes too, which fail.
            Err(Problem::Failed(_)) if stop.asked() => Err(Problem::Interrupted),
            outcome => outcome,
        }
    }
}
