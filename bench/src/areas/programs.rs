//! `nowait-bench programs`: programs of all kinds under `nowait run`, also those for which nothing
//! can be read ahead.
//!
//! A turn is a separate process (`harness/child.rs`). The files that a program reads are on a slow
//! disk, and are cold. The program itself and its libraries are cached.

mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nowait_cli::problem::Problem;
use nowait_cli::stop::Stop;
use serde_json::json;

use super::ahead::contender::{Name, Tools};
use crate::harness::bench::{Bench, Group};
use crate::harness::child::{self, Ended};
use crate::harness::column::Column;
use crate::harness::contender::{Contenders, Word};
use crate::harness::directory::Directory;
use crate::harness::machine::Machine;
use crate::harness::output::Output;
use crate::harness::processes::{COMPARED, Turn, reads};
use crate::harness::settings::RoundCount;
use crate::harness::slow::Slow;
use program::Program;

/// Programs of all kinds: alone, under nowait run, with --data, and with --learn
///
/// Copies files of this system to a disk with a delay, which is a file in memory. The filesystem is
/// mounted again before each turn.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The programs [default: all that are installed]
    #[arg(long, value_enum, value_name = "A,B,…", value_delimiter = ',')]
    programs: Vec<Program>,

    #[command(flatten)]
    slow: Option<Slow>,

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
alone: below 1, nowait run makes the program slower. CPU is processor time of the processes that ended
before the turn did. Needs --slow-disk.

JSON (--json): the shape of all areas (nowait-bench --help). A cell has the parameter \"program\". A round has
seconds, files_per_s (programs per second), cpu_s and reads.";

pub fn run(args: &Args, stop: Stop) -> Result<ExitCode, Problem> {
    let Some(slow) = &args.slow else {
        return Err(Problem::Usage("name the disk: --slow-disk 1ms".to_owned()));
    };
    let bench = Bench::new("programs", &args.output, args.rounds.count, stop);
    let tools = Tools::find(args.nowait.as_deref(), args.libraries.as_deref())?;
    let names = bench.choose(&args.contenders.names, |name| match name {
        Name::Warm => crate::harness::contender::Fit::No("no tree to warm".to_owned()),
        name => name.fits(&tools),
    })?;
    let programs = bench.choose(&args.programs, Program::fits)?;
    let files = Directory::make(Some(slow), 100_000, 2 << 30, "choose fewer programs")?;
    let turns = Turns {
        files,
        tools,
        stop: &bench.stop,
        programs: &programs,
    };
    for program in &programs {
        turns.prepare(*program)?;
    }
    let machine = Machine::look(turns.files.path())?;
    let group = |program: &Program| {
        let word = program.word();
        let parameters = json!({"program": word});
        Group::new(word, parameters, *program, names.clone()).titled(program.title())
    };
    let groups: Vec<Group<Program, Name>> = programs.iter().map(group).collect();
    // First turns of each program, which are not counted: the program itself is read, and what it
    // uses is learnt.
    for program in &programs {
        for name in [Name::Direct, Name::Learn] {
            if name == Name::Direct || names.contains(&name) {
                turns.run(*program, name)?;
            }
        }
    }
    let cells = bench.play(&groups, |group, name, _| turns.run(group.work, *name))?;
    let settings = json!({
        "about": format!("{slow}"),
        "slow_disk": args.slow,
        "cache": turns.files.how(),
        "legend": "Medians over rounds; ms: from the start of the processes to their end; CPU: processor time \
                   of the processes; reads: requests of the slow disk; ratios: times as fast as the program \
                   alone.",
    });
    let mut run = bench.run(machine, settings);
    for cell in cells {
        run.add(cell, &[&Name::Direct.word()], &COMPARED, &COLUMNS);
    }
    drop(turns);
    bench.finish(run)
}

const COLUMNS: [Column; 5] = [
    Column::Median("ms", "seconds", 1e3),
    Column::Range("seconds", 1e3),
    Column::Median("CPU ms", "cpu_s", 1e3),
    Column::Whole("reads", "reads"),
    Column::Ratio("", "files_per_s"),
];

/// The turns of a running measurement.
struct Turns<'a> {
    files: Directory,
    tools: Tools,
    stop: &'a Stop,
    programs: &'a [Program],
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        let words = self.programs.iter().map(|program| program.word());
        words.for_each(|word| self.tools.forget(&word));
    }
}

impl Turns<'_> {
    /// Makes the files of a program.
    fn prepare(&self, program: Program) -> Result<(), Problem> {
        let speed = self.files.full_speed();
        self.play(self.tools.command(Name::Direct, "", program.prepare()))?;
        drop(speed);
        Ok(())
    }

    /// Runs one turn; `None` after Ctrl-C.
    fn run(&self, program: Program, name: Name) -> Result<Option<Turn<()>>, Problem> {
        self.files.make_cold(0, 0, "with --slow-disk")?;
        let ended = self.play(self.tools.command(name, &program.word(), program.script()))?;
        let reads = self.files.take_log().as_deref().map(reads);
        Ok(ended.map(|ended| Turn::new(1, &ended, reads, ())))
    }

    fn play(&self, mut command: Command) -> Result<Option<Ended>, Problem> {
        let path: &Path = self.files.path();
        command
            .env("FILES", path)
            .env("HOME", path)
            .env("LC_ALL", "C");
        child::run(command, false, self.stop)
    }
}
