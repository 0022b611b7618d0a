//! `nowait learn` shows and removes the profiles of `nowait run --learn`.
//!
//! ```text
//!  nowait run --learn ─► session ─► load: threads that open, list and read ahead
//!                           │  └──► Learner of nowait-ahead-policy: what the program uses
//!                           └─► profile ─► store: a file of this user
//! ```

pub mod command;
mod load;
pub mod profile;
mod session;
mod store;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use chrono::{DateTime, Local};
use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::messages::say;
use crate::name::{DisplayPath, plural};
use crate::output::Output;
use crate::problem::Problem;
use crate::size::Size;
use crate::terminal::Terminal;

use profile::Profile;
pub use session::{Running, Session};
use store::Store;

/// Shows and removes what `nowait run --learn` has learnt.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = "\
The profiles are in /var/lib/nowait/learn for root, and in nowait/learn below XDG_CACHE_HOME or ~/.cache for
others. Each is a file NAME.profile that only its user may read. It has paths and numbers, and no contents of
files. Of the arguments of the program it has a checksum alone. nowait-learn-show(1) describes the format.

Examples:
  nowait run --learn -- python3 app.py   learns, and loads it next time
  nowait learn list
  nowait learn show NAME                 the files and their ranges
  nowait learn forget NAME

Exit status:
  See the pages of the three commands."
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(List),
    Show(Show),
    Forget(Forget),
}

/// Lists the profiles.
#[derive(Debug, clap::Args)]
#[command(
    after_help = r#"JSON (--json): one object. Sizes are in bytes, times in seconds since 1970.
  {
    "learn": 1,              version of this format
    "profiles": [{
      "name",
      "size",                of the profile itself
      "program",             bytes that are not UTF-8 are replaced
      "runs",                that were learnt
      "updated",             the last one
      "files", "bytes",      that are loaded
      "paths",               files, directories and other paths
      "error"                instead of the last six, if it cannot be read
    }]
  }
Later programs may add keys without changing the version.

Examples:
  nowait learn list

Exit status:
  0    success
  1    a profile cannot be read
  2    wrong usage"#
)]
struct List {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Shows what a profile loads: the bytes of each file, and the paths that are looked up.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
{}

Examples:
  nowait learn show web

Exit status:
  0    success
  1    there is no such profile, or it cannot be read
  2    wrong usage", profile::JSON_FORMAT))]
struct Show {
    /// The name, as `nowait learn list` prints it
    name: OsString,

    /// Print the profile itself, which is JSON, one value per line
    #[arg(long)]
    json: bool,
}

/// Removes profiles.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nowait learn forget web
  nowait learn forget --all

Exit status:
  0    success
  1    there is no such profile, or it cannot be removed
  2    wrong usage")]
struct Forget {
    /// The names, as `nowait learn list` prints them
    #[arg(required_unless_present = "all")]
    names: Vec<OsString>,

    /// Remove all profiles of this user
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let store = Store::new()?;
    let outcome = match &args.verb {
        Verb::List(List { json }) => list(&store, *json),
        Verb::Show(Show { name, json }) => show(&store, name, *json),
        Verb::Forget(Forget { names, all }) => forget(&store, names, *all),
    };
    Ok(outcome.unwrap_or_else(|problem| problem.report()))
}

fn list(store: &Store, as_json: bool) -> Result<ExitCode, Problem> {
    let names = store.names().map_err(Problem::Failed)?;
    let mut out = Output::new(Terminal::look());
    let mut failed = false;
    let mut profiles = Vec::new();
    if !as_json && !names.is_empty() {
        writeln!(
            out,
            "{:>7} {:>6} {:>5} {:16} NAME, PROGRAM",
            "BYTES", "FILES", "RUNS", "LAST RUN"
        )?;
    }
    for name in &names {
        let profile = match store.read(name) {
            Ok(Some(profile)) => Ok(profile),
            // It was removed meanwhile.
            Ok(None) => continue,
            Err(why) => Err(why),
        };
        failed |= profile.is_err();
        match (&profile, as_json) {
            (_, true) => profiles.push(value(store, name, &profile)),
            (Ok(profile), false) => writeln!(
                out,
                "{:>7} {:>6} {:>5} {:16} {}\n{:39}{}",
                Size(profile.bytes()).to_string(),
                profile.files(),
                profile.runs,
                time(profile.updated),
                shown(name),
                "",
                shown(profile.command.program.as_os_str())
            )?,
            (Err(why), false) => say(format_args!("nowait: {why}")),
        }
    }
    if as_json {
        writeln!(out, "{:#}", json!({ "learn": 1, "profiles": profiles }))?;
    } else if names.is_empty() {
        say("nowait: there are no profiles: `nowait run --learn -- COMMAND` makes one");
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(failed)))
}

/// A profile as JSON.
fn value(store: &Store, name: &OsStr, profile: &Result<Profile, String>) -> Value {
    let mut map = Map::new();
    let mut add = |key: &str, value: Value| _ = map.insert(key.to_owned(), value);
    add("name", json!(name.to_string_lossy()));
    add("size", json!(store.size(name)));
    match profile {
        Ok(profile) => {
            add("program", json!(profile.command.program.to_string_lossy()));
            add("runs", json!(profile.runs));
            add("updated", json!(profile.updated));
            add("files", json!(profile.files()));
            add("bytes", json!(profile.bytes()));
            add("paths", json!(profile.entries.len()));
        }
        Err(why) => add("error", json!(why)),
    }
    Value::Object(map)
}

fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds)
        .ok()
        .and_then(|it| DateTime::from_timestamp(it, 0));
    let shown = |time: DateTime<chrono::Utc>| {
        let local = time.with_timezone(&Local);
        local.format("%Y-%m-%d %H:%M").to_string()
    };
    time.map_or_else(String::new, shown)
}

fn show(store: &Store, name: &OsStr, as_json: bool) -> Result<ExitCode, Problem> {
    let found = store.read(name).map_err(Problem::Failed)?;
    let profile = found.ok_or_else(|| missing(name))?;
    let mut out = Output::new(Terminal::look());
    if as_json {
        profile.write(&mut out)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{}", shown(profile.command.program.as_os_str()))?;
    writeln!(
        out,
        "{}, the last one at {}; {} of {}",
        plural(profile.runs, "run"),
        time(profile.updated),
        Size(profile.bytes()),
        plural(profile.files(), "file")
    )?;
    writeln!(out, "{:>7} {:>6} PATH", "BYTES", "RANGES")?;
    for entry in &profile.entries {
        let path = shown(entry.path.as_os_str());
        let note = match entry.uses.unused {
            0 => String::new(),
            runs => format!(" (not used in {})", plural(runs.into(), "run")),
        };
        match &entry.file {
            Some(file) => {
                let (bytes, ranges) = (Size(file.bytes()).to_string(), file.ranges.len());
                writeln!(out, "{bytes:>7} {ranges:>6} {path}{note}")?;
            }
            None => {
                let what = match (entry.uses.many_looked_up, entry.uses.listed) {
                    _ if entry.uses.unmounted => "unmounted",
                    (true, _) => "all inodes",
                    (false, true) => "names",
                    (false, false) => "look-up",
                };
                writeln!(out, "{what:>14} {path}{note}")?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn missing(name: &OsStr) -> Problem {
    let name = shown(name);
    Problem::Failed(format!(
        "there is no profile {name}: `nowait learn list` lists them"
    ))
}

fn forget(store: &Store, names: &[OsString], all: bool) -> Result<ExitCode, Problem> {
    let known = match all {
        true => store.names().map_err(Problem::Failed)?,
        false => names.to_vec(),
    };
    let mut failed = false;
    for name in &known {
        // A name may not lead out of the directory.
        let is_name = Path::new(name).components().count() == 1 && !name.is_empty();
        match is_name.then(|| store.remove(name)) {
            Some(Ok(true)) => {}
            Some(Err(why)) => {
                failed = true;
                say(format_args!("nowait: {why}"));
            }
            Some(Ok(false)) | None => {
                failed = true;
                say(format_args!("nowait: {}", missing(name)));
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// A name of a profile, or a word of a command, for people.
fn shown(name: &OsStr) -> String {
    DisplayPath(name.as_ref()).to_string()
}
