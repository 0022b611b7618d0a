//! `nowait-bench sources`: reads all files of a source tree, as builds, linters and search programs do.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use clap::ValueEnum;
use nowait::Walk;
use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::harness::bench::{Bench, Group};
use crate::harness::contender::{Contenders, Fit, Named, Word};
use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::round::Round;
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use crate::harness::usage::Usage;

/// All files of a source tree: nowait beside rayon with std::fs::read
///
/// Makes files with the names and the sizes of those of a tree, with random bytes, and reads all of them once in each turn.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The tree whose names and sizes are taken, for example that of a compiler
    tree: PathBuf,

    /// How many of its files are taken at most, in the order of their paths
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,

    #[command(flatten)]
    slow: Option<Slow>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

pub const AFTER: &str = "\
Contenders take turns within each round, on the same files. Ratios are those of nowait to rayon, taken within rounds.
rayon has 64 threads if the files are cold, since its threads wait for the disk, and its default otherwise. The paths are
listed before a turn. All contenders count the same bytes.
Without --slow-disk the files are made in the current directory, and cold turns need root.

JSON (--json): the shape of all areas (nowait-bench --help). An operation is a file. A cell has the parameters \"files\",
\"bytes\" and \"cold\".";

/// The tasks of nowait::tokio::read, and the threads that read cold files.
const TASKS: usize = 64;
/// The threads of the runtime.
const THREADS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// nowait::read_files
    ReadFiles,
    /// nowait::tokio::read, in 64 tasks
    Tokio,
    /// std::fs::read in rayon's threads
    Rayon,
}

impl Named for Name {
    fn is_ours(&self) -> bool {
        *self != Name::Rayon
    }
}

/// The files of a turn.
struct Work {
    paths: Arc<[PathBuf]>,
    bytes: u64,
    is_cold: bool,
}

/// The threads of a contender. Those of a pool and of a runtime are started before the time begins. Those of nowait's engine
/// are started within it, if they have ended since the last turn.
enum Threads {
    OfTheEngine,
    Runtime(Runtime),
    Pool(ThreadPool),
}

impl Work {
    fn threads(&self, name: Name) -> io::Result<Threads> {
        Ok(match name {
            Name::ReadFiles => Threads::OfTheEngine,
            Name::Tokio => Threads::Runtime(
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(THREADS)
                    .enable_all()
                    .build()?,
            ),
            Name::Rayon => {
                let threads = if self.is_cold { TASKS } else { 0 };
                let pool = ThreadPoolBuilder::new().num_threads(threads).build();
                Threads::Pool(pool.map_err(io::Error::other)?)
            }
        })
    }

    /// Reads all files once. Returns their bytes.
    fn read(&self, by: &Threads) -> io::Result<u64> {
        match by {
            Threads::OfTheEngine => {
                let sizes = nowait::read_files(&self.paths[..]).map(|file| Ok(file?.bytes().len()));
                sizes
                    .map(|size: io::Result<usize>| size.map(|size| size as u64))
                    .sum()
            }
            Threads::Runtime(runtime) => self.by_tasks(runtime),
            Threads::Pool(pool) => {
                let size = |path: &PathBuf| Ok(std::fs::read(path)?.len() as u64);
                pool.install(|| self.paths.par_iter().map(size).sum())
            }
        }
    }

    fn by_tasks(&self, runtime: &Runtime) -> io::Result<u64> {
        let next = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (paths, next) = (self.paths.clone(), next.clone());
                runtime.spawn(async move {
                    let mut sum = 0;
                    while let Some(path) = paths.get(next.fetch_add(1, Relaxed)) {
                        sum += nowait::tokio::read(path).await?.len() as u64;
                    }
                    Ok::<u64, io::Error>(sum)
                })
            })
            .collect();
        let ended = tasks.into_iter().map(|task| runtime.block_on(task)?);
        ended.sum()
    }
}

/// The paths, relative to the tree, and the sizes of its regular files.
fn files_of(tree: &Path, most: usize) -> Result<Vec<(PathBuf, u64)>, Problem> {
    let failed = |e: io::Error| Problem::of(tree.display(), e);
    let mut files = Vec::new();
    for entry in Walk::blocking_open(tree).map_err(|e| failed(e.into()))? {
        let Ok(entry) = entry else { continue };
        let metadata = entry.path().symlink_metadata().map_err(failed)?;
        if metadata.is_file()
            && let Ok(path) = entry.path().strip_prefix(tree)
        {
            files.push((path.to_owned(), metadata.len()));
        }
    }
    files.sort_unstable();
    files.truncate(most);
    Ok(files)
}

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let bench = Bench::new("sources", &args.output, args.rounds.count, stop);
    let names = bench.choose(&args.contenders.names, |_| Fit::Yes)?;
    let files = files_of(&args.tree, args.files as usize)?;
    if files.is_empty() {
        let tree = args.tree.display();
        return Err(Problem::Usage(format!("{tree} has no regular files")));
    }
    let bytes: u64 = files.iter().map(|(_, size)| size).sum();
    let (count, need) = (
        files.len() as u64,
        bytes + files.len() as u64 * BYTES_A_FILE,
    );
    let remedy = "choose fewer --files, or go to a directory elsewhere";
    let directory = Directory::make(args.slow.as_ref(), count, need, remedy)?;
    directory.fill(&files, &bench.stop)?;
    let machine = Machine::look(directory.path())?;
    let paths: Arc<[PathBuf]> = files
        .iter()
        .map(|(path, _)| directory.path().join(path))
        .collect();
    let group = |(title, is_cold): (&str, bool)| {
        let parameters = json!({ "files": count, "bytes": bytes, "cold": is_cold });
        let paths = paths.clone();
        let work = Work {
            paths,
            bytes,
            is_cold,
        };
        Group::new(title, parameters, work, names.clone())
    };
    let groups = [("cached", false), ("cold", true)].map(group);
    let cells = bench.play(&groups, |group, name: &Name, _| {
        let work = &group.work;
        match work.is_cold {
            true => directory.make_cold(count, bytes, "it needs root")?,
            false => drop(work.read(&work.threads(Name::Rayon)?)?),
        }
        let threads = work.threads(*name)?;
        if bench.stop.asked() {
            return Ok(None);
        }
        let (before, begin) = (Usage::of_self(), Instant::now());
        let read = work
            .read(&threads)
            .map_err(|e| Problem::of(name.word(), e))?;
        let seconds = begin.elapsed().as_secs_f64();
        if read != work.bytes {
            let expected = work.bytes;
            return Err(Problem::Failed(format!(
                "{}: {read} bytes of {expected}",
                name.word()
            )));
        }
        Ok(Some(Round::new(
            count,
            0,
            seconds,
            Usage::of_self() - before,
        )))
    })?;
    let disk = args.slow.as_ref().map(|slow| format!("; {slow}"));
    let settings = json!({
        "about": format!("{count} files{}", disk.unwrap_or_default()),
        "cache": directory.how(),
        "slow_disk": args.slow,
        "legend": "Medians over rounds. An operation is a file.",
    });
    let mut run = bench.run(machine, settings);
    let tables = [
        ("files/s", "ops_per_s", 1.0),
        ("CPU us/file", "cpu_us_per_op", 1.0),
    ];
    run.add_by_figure(cells, &Name::Rayon.word(), &tables);
    bench.finish(run)
}
