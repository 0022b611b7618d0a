//! `nowait-bench keep-cache`: programs that read or copy a tree, alone, under `nowait run
//! --keep-cache`, and under nocache.
//! A turn is a separate process (`harness/child.rs`). Before it the tree is made cold, or half of it
//! is then cached. After it, the residency of each file is compared with that before.

mod contender;
mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nowait::residency::page_size;
use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde::Serialize;
use serde_json::json;

use crate::harness::bench::{Bench, Group};
use crate::harness::cache::{evict, resident, sync, warm, warm_blocks};
use crate::harness::child;
use crate::harness::column::Column;
use crate::harness::contender::{Contenders, Word, once_each};
use crate::harness::count::Count;
use crate::harness::directory::{BYTES_A_FILE, Directory};
use crate::harness::files::open;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::processes::{COMPARED, Turn, check_root, find_nowait};
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use contender::Name;
use program::{Program, State};

/// Programs that leave the page cache as it was: nowait run --keep-cache, nocache
///
/// Makes a tree of files in the current directory, or with --slow-disk on a disk with a delay. The
/// programs write to a directory beside the tree. Both are removed at the end. To measure a
/// filesystem, go to a directory on it.
///
/// Before each turn the tree is cold, or every second file and the first half of the others are
/// cached. Dropping caches needs root and slows down every program on the machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The programs [default: all that are installed]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    programs: Vec<Program>,

    /// The states of the page cache before a turn
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["cold", "half"])]
    states: Vec<State>,

    /// The number of small files of the tree
    #[arg(long, value_name = "N", default_value = "2000")]
    files: Count,

    /// The size of each small file
    #[arg(long, value_name = "SIZE", default_value = "20K")]
    bytes: Size,

    /// The size of the one large file of the tree
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    large: Size,

    #[command(flatten)]
    slow: Option<Slow>,

    /// The program nowait [default: the one in the directory of this program, or else in PATH]
    #[arg(long, value_name = "PROGRAM")]
    nowait: Option<PathBuf>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

pub const AFTER: &str = "\
Contenders take turns within each round. A turn is a process from its start to its end, with those that it
starts, and with syncfs(2) if it writes. Its output goes to /dev/null. Each contender runs in a mount
namespace, which hides the control groups from all but nowait. Ratios say how many times as fast a
contender is as the program alone.
read: bytes read from the device. left: bytes of the tree that are cached after the turn and were not
before. lost: the reverse. output: bytes of the files written that are cached.
Ctrl-C prints what was measured and removes the files; a second one ends the program at once, and files
that were made here stay.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"program\", \"state\",
\"files\" and \"bytes\". A round has seconds, files_per_s, cpu_s, device_bytes, left_bytes, lost_bytes and
output_bytes.";

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    if args.slow.is_none() {
        check_root("with --slow-disk")?;
    }
    let bench = Bench::new("keep-cache", &args.output, args.rounds.count, stop);
    let nowait = find_nowait(args.nowait.as_deref())?;
    let names = bench.choose(&args.contenders.names, |name| name.fits(&nowait))?;
    let programs = bench.choose(&args.programs, Program::fits)?;
    let ground = Ground::prepare(args, &bench.stop)?;
    let machine = Machine::look(ground.directory.path())?;
    let (files, bytes) = (ground.files.len() as u64, ground.bytes());
    let mut groups = Vec::new();
    for state in once_each(&args.states) {
        for program in &programs {
            let (word, state_word) = (program.word(), state.word());
            let parameters = json!({
                "program": word, "state": state_word, "files": files, "bytes": bytes,
            });
            let title = format!("{word}: {files} files, {}, {state_word}", Size(bytes));
            let name = format!("{word}-{state_word}");
            let group = Group::new(name, parameters, (*program, state), names.clone());
            groups.push(group.titled(title));
        }
    }
    let turn = |group: &Group<(Program, State), Name>, name: &Name, _| {
        ground.turn(&nowait, group.work, *name, &bench.stop)
    };
    // A turn that is not counted: the first one makes the kernel allocate memory, which is slow in a
    // virtual machine.
    if let Some(group) = groups.first() {
        turn(group, &group.contenders[0], 0)?;
    }
    let cells = bench.play(&groups, turn)?;
    let disk = args.slow.as_ref().map(|slow| format!("{slow}; "));
    let about = format!("{}{files} files, {}", disk.unwrap_or_default(), Size(bytes));
    let settings = json!({
        "about": about,
        "slow_disk": args.slow,
        "cache": format!("{}; half: then every second file and the first half of the others are read",
                         ground.directory.how()),
        "legend": "Medians over rounds; ms: from the start of the processes to their end, with syncfs(2) for \
                   those that write; read: from the device; left: of the tree, cached after the turn and not \
                   before; lost: the reverse; output: of what was written, cached after the turn; ratios: \
                   times as fast as the program alone.",
    });
    let mut run = bench.run(machine, settings);
    for cell in cells {
        run.add(cell, &[&Name::Direct.word()], &COMPARED, &COLUMNS);
    }
    bench.finish(run)
}

const MIB: f64 = 1.0 / (1 << 20) as f64;

const COLUMNS: [Column; 8] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Median("read MiB", "device_bytes", MIB),
    Column::Median("left MiB", "left_bytes", MIB),
    Column::Median("lost MiB", "lost_bytes", MIB),
    Column::Median("output MiB", "output_bytes", MIB),
    Column::Ratio("", "files_per_s"),
];

/// The page cache after a turn.
#[derive(Serialize)]
struct Residency {
    #[serde(skip_serializing_if = "Option::is_none")]
    device_bytes: Option<u64>,
    left_bytes: u64,
    lost_bytes: u64,
    output_bytes: u64,
}

/// The tree and the directory for what programs write.
struct Ground {
    /// The files of the tree with their sizes.
    files: Vec<(PathBuf, u64)>,
    directory: Directory,
}

const SMALLER: &str =
    "choose fewer --files, smaller --bytes or --large, or go to a directory elsewhere";
const TREE: &str = "tree";
const EMPTY: &str = "empty";
const OUT: &str = "out";

impl Ground {
    fn prepare(args: &Args, stop: &Stop) -> Result<Ground, Problem> {
        let small = (0..args.files.0).map(|n| {
            let path = format!("{TREE}/directory-{:03}/file-{n:06}", n / 100);
            (PathBuf::from(path), args.bytes.0)
        });
        let large = (PathBuf::from(format!("{TREE}/large")), args.large.0);
        let files: Vec<_> = std::iter::once(large).chain(small).collect();
        let bytes: u64 = files.iter().map(|(_, size)| size).sum();
        let count = files.len() as u64;
        // Programs write the files again.
        let need = 2 * (bytes + count * BYTES_A_FILE);
        let directory = Directory::make(args.slow.as_ref(), 2 * count + 4096, need, SMALLER)?;
        directory.fill(&files, stop)?;
        for name in [EMPTY, OUT] {
            let path = directory.path().join(name);
            fs::create_dir(&path).map_err(|e| directory.failed(&path, e))?;
        }
        Ok(Ground { files, directory })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    /// Runs one turn; `None` after Ctrl-C.
    fn turn(
        &self,
        nowait: &Path,
        (program, state): (Program, State),
        name: Name,
        stop: &Stop,
    ) -> Result<Option<Turn<Residency>>, Problem> {
        self.clear_out()?;
        let files = self.files.len() as u64;
        self.directory
            .make_cold(files, self.bytes(), "with --slow-disk")?;
        // The program itself is cached when it runs on the tree, for each contender.
        for name in [name, Name::Direct] {
            let command = self.command(nowait, program, name, EMPTY);
            if child::run(command, false, stop)?.is_none() {
                return Ok(None);
            }
            self.clear_out()?;
        }
        self.arrange(state)?;
        let before = self.residency()?;
        let command = self.command(nowait, program, name, TREE);
        let Some(ended) = child::run(command, false, stop)? else {
            return Ok(None);
        };
        let after = self.residency()?;
        let both = || before.iter().zip(&after);
        let more = Residency {
            device_bytes: ended.used.device_bytes,
            left_bytes: both().map(|(b, a)| a.saturating_sub(*b)).sum(),
            lost_bytes: both().map(|(b, a)| b.saturating_sub(*a)).sum(),
            output_bytes: self.output()?,
        };
        Ok(Some(Turn::new(files, &ended, None, more)))
    }

    fn command(&self, nowait: &Path, program: Program, name: Name, tree: &str) -> Command {
        let mut command = name.command(nowait, program);
        let root = self.directory.path();
        command
            .env("TREE", root.join(tree))
            .env("OUT", root.join(OUT))
            .env("RESTIC_PASSWORD", "bench")
            .env("BORG_BASE_DIR", root.join(OUT))
            .env("LC_ALL", "C");
        command
    }

    /// Puts the page cache of the tree into a state.
    fn arrange(&self, state: State) -> Result<(), Problem> {
        for ((path, size), number) in self.files.iter().zip(0..) {
            let file = open(&self.directory.path().join(path))?;
            match state {
                State::Cold => evict(&[file])?,
                State::Half if number % 2 == 0 => {
                    let blocks: Vec<u64> = (0..size / 2 / page_size()).collect();
                    warm_blocks(&file, &blocks, page_size())?;
                }
                State::Half => warm(&file, *size)?,
            }
        }
        Ok(())
    }

    /// The cached bytes of each file of the tree.
    fn residency(&self) -> Result<Vec<u64>, Problem> {
        let files = self.files.iter().map(|(path, _)| {
            let file = open(&self.directory.path().join(path))?;
            resident(&[file]).ok_or_else(|| {
                Problem::Failed("the kernel does not report residency of these files".into())
            })
        });
        files.collect()
    }

    /// The cached bytes of all files that were written.
    fn output(&self) -> Result<u64, Problem> {
        let mut directories = vec![self.directory.path().join(OUT)];
        let mut bytes = 0;
        while let Some(directory) = directories.pop() {
            let failed = |e| Problem::of(directory.display(), e);
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    directories.push(entry.path());
                } else if kind.is_file() {
                    bytes += resident(&[open(&entry.path())?]).unwrap_or(0);
                }
            }
        }
        Ok(bytes)
    }

    fn clear_out(&self) -> Result<(), Problem> {
        let out = self.directory.path().join(OUT);
        fs::remove_dir_all(&out)
            .and_then(|()| fs::create_dir(&out))
            .map_err(|e| Problem::of(out.display(), e))?;
        sync(self.directory.path())
    }
}
