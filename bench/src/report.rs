//! `nowait-bench report`: all areas in a given time, as one page.
//!
//! ```text
//!  parts ─► a process for each ─► DIR/PART.json ─► DIR/index.html, summary.md, report.json
//!            └ skipped if its results are there already
//! ```

mod aggregate;
mod losses;
mod markdown;
mod page;
mod part;
mod proposals;
mod results;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nowait_cli::problem::{INTERRUPTED, Problem};
use nowait_cli::progress::Progress;
use nowait_cli::stop::Stop;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::files::{is_full, no_space};
use crate::harness::processes::LIBRARIES;
use crate::harness::run::Run;
use part::{PARTS, Part};
use results::{Outcome, Report};

/// The help of its files.
pub const AFTER: &str = "\
Each part is one process of this program. Its results are kept in DIR/PART.json: the same command again
goes on where it was interrupted. A part that cannot run here is left out, and the page gives the reason.
Test files lie in a temporary directory in DIR, which is removed at the end.

DIR/index.html is the page. It needs no network. DIR/summary.md has the same tables in Markdown.
DIR/report.json has the medians and the ratios of all parts: {PART: {\"command\", \"machine\", …,
\"cells\": {CELL: {\"medians\": {CONTENDER: {FIGURE: number}}, \"ratios\": {\"A/B\": {FIGURE: [median, low95,
high95]}}}}}}.

The times are those of an SSD; a slower device takes longer. For all parts: root (slow disks, devices in
memory), fio, bfs, nginx, vmtouch, util-linux fincore, rsync, restic, borg, nocache, libnowait_ahead.so (see
--libraries).

Exit codes: 0 done (also if parts were left out), 1 failed, 2 usage, 130 interrupted (the page has what
was measured).";

/// Measures all areas and makes one page of the results
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// About how long to measure, in minutes
    #[arg(long, value_name = "N", default_value = "30", value_parser = minutes,
          allow_negative_numbers = true)]
    minutes: f64,

    /// The directory of the results; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Only these parts
    #[arg(long, value_name = "A,B,…", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(PARTS.map(|part| part.name)))]
    parts: Vec<String>,

    /// The directory of libnowait_aio.so and libnowait_ahead.so [default: where each part finds them]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.0..=1440.0).contains(&minutes) => Ok(minutes),
        _ => Err("give a number of minutes from 0 to 1440".into()),
    }
}

/// Measures the parts, or takes their results from an earlier run, and writes the page.
pub fn run(args: &Args) -> Result<ExitCode, Problem> {
    let stop = Stop::by_handlers()?;
    let data = prepare(&args.out)?;
    let report = measure(args, data.path(), &stop)?;
    data.close().map_err(|e| Problem::of("test files", e))?;
    if report.runs().next().is_none() && stop.asked() {
        return Err(Problem::Interrupted);
    }
    write(&args.out, "report.json", &report.aggregate().to_string())?;
    write(&args.out, "summary.md", &report.markdown())?;
    write(&args.out, "index.html", &report.html())?;
    for (part, outcome) in &report.parts {
        if let Outcome::Skipped(why) = outcome {
            eprintln!("nowait-bench: `{}` is left out: {why}", part.name);
        }
    }
    println!("{}", args.out.join("index.html").display());
    Ok(match stop.asked() {
        true => ExitCode::from(INTERRUPTED),
        false => ExitCode::SUCCESS,
    })
}

/// The files of a report, beside those of its parts.
const FILES: [&str; 3] = ["index.html", "summary.md", "report.json"];

/// Makes the directory of the results, and in it one for test files. A directory with other files
/// is refused, because its files could be replaced.
fn prepare(out: &Path) -> Result<TempDir, Problem> {
    let failed = |e: std::io::Error| {
        let out = out.display();
        Problem::Failed(format!(
            "--out {out}: {e}; name a directory that you may write to, or one that can be made"
        ))
    };
    fs::create_dir_all(out).map_err(failed)?;
    for entry in fs::read_dir(out).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_of_part = PARTS.iter().any(|part| {
            let suffix = name.strip_prefix(part.name);
            matches!(suffix, Some(".json" | ".part"))
        });
        let is_of_report = FILES.contains(&&*name) && FILES.iter().all(|f| out.join(f).exists());
        if !(is_of_part || is_of_report || name.starts_with(DATA)) {
            return Err(Problem::Usage(format!(
                "--out: {} is not of a report, and it could be replaced; name a new directory",
                path.display()
            )));
        }
    }
    let data = tempfile::Builder::new().prefix(DATA).tempdir_in(out);
    data.map_err(failed)
}

/// The beginning of the name of the directory of test files.
const DATA: &str = "data-";

/// Runs each part that has no results yet.
fn measure(args: &Args, data: &Path, stop: &Stop) -> Result<Report, Problem> {
    let total = args.minutes * 60.0;
    let libraries = args.libraries.as_ref().map(std::path::absolute).transpose();
    let libraries = libraries.map_err(|e| Problem::of("--libraries", e))?;
    let is_wanted =
        |part: &&Part| args.parts.is_empty() || args.parts.iter().any(|p| p == part.name);
    let wanted = || PARTS.iter().filter(is_wanted);
    let all: f64 = wanted().map(|part| part.seconds(total)).sum();
    let mut progress = Progress::of_turns(all.ceil() as u64);
    let mut before = 0.0;
    let mut report = Report { parts: Vec::new() };
    for (number, part) in wanted().enumerate() {
        let words = part.args(total);
        let path = args.out.join(part.name).with_extension("json");
        let mut outcome = earlier(&path, &words).map(|run| Outcome::Measured(Box::new(run)));
        if outcome.is_none() && !stop.asked() {
            let message = format!(
                "s, part {} of {}: {}",
                number + 1,
                wanted().count(),
                part.name
            );
            let mut shown = |seconds: f64| {
                progress.at(
                    (before + seconds.min(part.seconds(total))) as u64,
                    message.clone(),
                );
            };
            outcome = Some(child(
                &words,
                libraries.as_deref(),
                data,
                &path,
                stop,
                &mut shown,
            )?);
        }
        before += part.seconds(total);
        let outcome =
            outcome.unwrap_or_else(|| Outcome::Skipped("interrupted before it began".into()));
        report.parts.push((part, outcome));
    }
    Ok(report)
}

/// The results of an earlier run of the same command, if it was not interrupted.
fn earlier(path: &Path, args: &[String]) -> Option<Run> {
    let run: Run = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let command = format!("nowait-bench {} --json", args.join(" "));
    (run.command == command && !run.interrupted).then_some(run)
}

/// Runs one part in the directory `data`, and keeps its results at `path`.
fn child(
    args: &[String],
    libraries: Option<&Path>,
    data: &Path,
    path: &Path,
    stop: &Stop,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, Problem> {
    let failed = |e: std::io::Error| Problem::of(path.display(), e);
    let program = std::env::current_exe().map_err(failed)?;
    let unfinished = path.with_extension("part");
    let mut messages = tempfile::tempfile_in(data).map_err(failed)?;
    // The part gets one SIGINT, from `wait`, and ends with the results that it has. In the group of
    // this process it would get another one from the terminal, and a second one ends it at once.
    let child = Command::new(program)
        .args(args)
        .arg("--json")
        .envs(libraries.map(|path| (LIBRARIES, path)))
        .current_dir(data)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(File::create(&unfinished).map_err(failed)?)
        .stderr(messages.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let status = wait(child, stop, progress).map_err(failed)?;
    let mut said = String::new();
    messages.rewind().map_err(failed)?;
    messages.read_to_string(&mut said).map_err(failed)?;
    let results = fs::read(&unfinished).map_err(failed)?;
    Ok(match serde_json::from_slice(&results) {
        Ok(run) => {
            fs::rename(&unfinished, path).map_err(failed)?;
            Outcome::Measured(run)
        }
        Err(_) => {
            fs::remove_file(&unfinished).map_err(failed)?;
            Outcome::Skipped(reason(&said, status))
        }
    })
}

/// Waits for a part, and passes Ctrl-C on to it.
fn wait(
    mut child: Child,
    stop: &Stop,
    progress: &mut dyn FnMut(f64),
) -> std::io::Result<ExitStatus> {
    let began = Instant::now();
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.asked() && !told {
            told = true;
            // The part may have ended already.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
        }
        progress(began.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The first line that a part wrote on standard error.
fn reason(said: &str, status: ExitStatus) -> String {
    let line = said.lines().find(|line| !line.trim().is_empty());
    let line = line.map(|line| line.trim_start_matches("nowait-bench: ").to_owned());
    line.unwrap_or_else(|| format!("it ended with {status} and without a message"))
}

fn write(out: &Path, name: &str, text: &str) -> Result<(), Problem> {
    let path = out.join(name);
    fs::write(&path, text).map_err(|e| match is_full(&e) {
        true => no_space(
            out,
            None,
            "make space, and repeat the command: measured parts are kept",
        ),
        false => Problem::of(path.display(), e),
    })
}
