//! `nowait-bench ahead`: programs that read trees, with and without `nowait run`, and beside
//! `nowait warm --metadata`.
//! A turn is a separate process (`harness/child.rs`). Before it the trees are made cold, and the
//! program runs on an empty tree.

pub(super) mod contender;
mod ground;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nowait_cli::problem::Problem;
use nowait_cli::size::Size;
use nowait_cli::stop::Stop;
use serde_json::json;

use crate::harness::bench::{Bench, Group};
use crate::harness::child::{self, Ended};
use crate::harness::column::Column;
use crate::harness::contender::{Contenders, Word, once_each};
use crate::harness::count::Count;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::processes::{COMPARED, Turn, check_root, reads};
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use contender::{Name, Tools};
use ground::Ground;
use workload::{Program, Tree};

/// Programs that read trees: alone, under nowait run, and beside nowait warm --metadata
///
/// Makes trees of files in the current directory, or with --slow-disk on a disk with a delay, which
/// is a file in memory. Removes them at the end. The programs cp and restic write to the current
/// directory.
///
/// The trees are cold at the start of each turn: the filesystem of a slow disk is mounted again;
/// otherwise the kernel drops all clean caches, which needs root and slows down every program on
/// the machine for a while.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The programs [default: all that are installed]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    programs: Vec<Program>,

    /// The trees that the programs read
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',',
          default_values = ["one", "many"])]
    trees: Vec<Tree>,

    /// The number of files of each tree
    #[arg(long, value_name = "N", default_value = "20k")]
    files: Count,

    /// The size of each file
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    bytes: Size,

    #[command(flatten)]
    slow: Option<Slow>,

    /// Measure cached trees: each turn is run twice, and the second run is measured
    #[arg(long)]
    warm: bool,

    /// The program nowait [default: the one in the directory of this program, or else in PATH]
    #[arg(long, value_name = "PROGRAM")]
    nowait: Option<PathBuf>,

    /// The directory of libnowait_ahead.so [default: where nowait run finds it]
    #[arg(long, value_name = "PATH")]
    libraries: Option<PathBuf>,

    #[command(flatten)]
    contenders: Contenders<Name>,

    #[command(flatten)]
    rounds: RoundCount,

    #[command(flatten)]
    output: Output,
}

pub const AFTER: &str = "\
Contenders take turns within each round. A turn is a process from its start to its end, with those that it
starts. Its output goes to /dev/null. Ratios say how many times as fast a contender is as the program
alone. CPU is processor time of the processes, without kernel threads.
A disk that rotates: --slow-disk 200us --queue 1 --seek 5ms.
Ctrl-C prints what was measured and removes the trees; a second one ends the program at once, and trees that
were made here stay.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameters \"program\", \"tree\" and
\"files\". A round has seconds, files_per_s and cpu_s; on a slow disk also reads.";

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    if !args.warm && args.slow.is_none() {
        check_root("with --warm")?;
    }
    let bench = Bench::new("ahead", &args.output, args.rounds.count, stop);
    let tools = Tools::find(args.nowait.as_deref(), args.libraries.as_deref())?;
    let names = bench.choose(&args.contenders.names, |name| name.fits(&tools))?;
    let programs = bench.choose(&args.programs, Program::fits)?;
    let trees = once_each(&args.trees);
    let mut groups = Vec::new();
    for program in &programs {
        for tree in &trees {
            groups.push(group(args, *program, *tree, &names)?);
        }
    }
    let ground = Ground::prepare(
        &trees,
        (args.files, args.bytes),
        args.slow.as_ref(),
        &bench.stop,
    )?;
    let machine = Machine::look(ground.root())?;
    let turns = Turns {
        args,
        tools,
        ground,
        stop: &bench.stop,
    };
    // Before the rounds, each tree has a turn that is not counted: the first one makes the kernel
    // allocate memory, which is slow in a virtual machine.
    let first = |tree| groups.iter().find(|group| group.work.1 == tree);
    for Group {
        work, contenders, ..
    } in trees.iter().filter_map(|tree| first(*tree))
    {
        turns.run(*work, contenders[0])?;
    }
    let cells = bench.play(&groups, |group, name, _| turns.run(group.work, *name))?;
    let disk = args.slow.as_ref().map(|slow| format!("{slow}; "));
    let settings = json!({
        "about": format!("{}files of {}", disk.unwrap_or_default(), args.bytes),
        "slow_disk": args.slow,
        "cache": match args.warm {
            true => "warm: each turn is run twice, and the second run is measured",
            false => turns.ground.how(),
        },
        "legend": "Medians over rounds; ms: from the start of the processes to their end; CPU: processor time \
                   of the processes; reads: requests of the slow disk; ratios: times as fast as the program \
                   alone.",
    });
    let mut run = bench.run(machine, settings);
    for cell in cells {
        run.add(cell, &[&Name::Direct.word()], &COMPARED, &COLUMNS);
    }
    bench.finish(run)
}

const COLUMNS: [Column; 6] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Whole("reads", "reads"),
    Column::Ratio("", "files_per_s"),
    Column::Short("CPU", "cpu_s"),
];

/// The contenders with one program and tree; an error if none takes part.
fn group(
    args: &Args,
    program: Program,
    tree: Tree,
    names: &[Name],
) -> Result<Group<(Program, Tree), Name>, Problem> {
    let names: Vec<Name> = names
        .iter()
        .copied()
        .filter(|name| name.does(program))
        .collect();
    if names.is_empty() {
        return Err(Problem::Usage(format!(
            "no contender takes part with {}: choose direct, or leave the program out",
            program.word()
        )));
    }
    let (files, directories) = tree.counts(args.files.0);
    let parameters = json!({"program": program.word(), "tree": tree.word(), "files": files});
    let directories = match directories {
        1 => "one directory".to_owned(),
        more => format!("{more} directories"),
    };
    let name = format!("{}-{}", program.word(), tree.word());
    let title = format!("{}: {files} files in {directories}", program.word());
    Ok(Group::new(name, parameters, (program, tree), names).titled(title))
}

/// The turns of a running measurement.
struct Turns<'a> {
    args: &'a Args,
    tools: Tools,
    ground: Ground,
    stop: &'a Stop,
}

impl Turns<'_> {
    /// Runs one turn; `None` after Ctrl-C.
    fn run(
        &self,
        (program, tree): (Program, Tree),
        name: Name,
    ) -> Result<Option<Turn<()>>, Problem> {
        let path = self.ground.tree(tree);
        let empty = self.ground.empty();
        let first = if self.args.warm {
            &path
        } else {
            self.ground.make_cold()?;
            &empty
        };
        if self.play(program, name, first)?.is_none() {
            return Ok(None);
        }
        self.ground.trees.take_log();
        let ended = self.play(program, name, &path)?;
        let reads = self.ground.trees.take_log().as_deref().map(reads);
        let files = tree.counts(self.args.files.0).0;
        Ok(ended.map(|ended| Turn::new(files, &ended, reads, ())))
    }

    /// Runs a program on a tree.
    fn play(&self, program: Program, name: Name, tree: &Path) -> Result<Option<Ended>, Problem> {
        self.ground.clear_out()?;
        let prepared = |mut command: Command| {
            command
                .env("TREE", tree)
                .env("OUT", self.ground.out())
                .env("RESTIC_PASSWORD", "bench")
                .env("LC_ALL", "C");
            command
        };
        if let Some(before) = program.before() {
            let mut command = Command::new("sh");
            command.args(["-c", before]);
            if child::run(prepared(command), false, self.stop)?.is_none() {
                return Ok(None);
            }
        }
        let command = self.tools.turn(name, program, tree);
        child::run(prepared(command), false, self.stop)
    }
}
